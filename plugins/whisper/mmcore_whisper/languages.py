"""The languages Whisper was trained on, in the order of their tokens, and the names people give them.

Source: the tokenizer of openai/whisper (large-v3 added Cantonese at the end). Read as ``code:name``.
"""

from __future__ import annotations

_LANGUAGES = """
    en:english zh:chinese de:german es:spanish ru:russian ko:korean fr:french ja:japanese pt:portuguese
    tr:turkish pl:polish ca:catalan nl:dutch ar:arabic sv:swedish it:italian id:indonesian hi:hindi
    fi:finnish vi:vietnamese he:hebrew uk:ukrainian el:greek ms:malay cs:czech ro:romanian da:danish
    hu:hungarian ta:tamil no:norwegian th:thai ur:urdu hr:croatian bg:bulgarian lt:lithuanian la:latin
    mi:maori ml:malayalam cy:welsh sk:slovak te:telugu fa:persian lv:latvian bn:bengali sr:serbian
    az:azerbaijani sl:slovenian kn:kannada et:estonian mk:macedonian br:breton eu:basque is:icelandic
    hy:armenian ne:nepali mn:mongolian bs:bosnian kk:kazakh sq:albanian sw:swahili gl:galician mr:marathi
    pa:punjabi si:sinhala km:khmer sn:shona yo:yoruba so:somali af:afrikaans oc:occitan ka:georgian
    be:belarusian tg:tajik sd:sindhi gu:gujarati am:amharic yi:yiddish lo:lao uz:uzbek fo:faroese
    ht:haitian_creole ps:pashto tk:turkmen nn:nynorsk mt:maltese sa:sanskrit lb:luxembourgish my:myanmar
    bo:tibetan tl:tagalog mg:malagasy as:assamese tt:tatar haw:hawaiian ln:lingala ha:hausa ba:bashkir
    jw:javanese su:sundanese yue:cantonese
"""

_OTHER_NAMES = """
    my:burmese ca:valencian nl:flemish ht:haitian lb:letzeburgesch ps:pushto pa:panjabi ro:moldavian
    ro:moldovan si:sinhalese es:castilian zh:mandarin
"""


def _pairs(table: str) -> tuple[tuple[str, str], ...]:
    entries = (entry.split(":") for entry in table.split())
    return tuple((code, name.replace("_", " ")) for code, name in entries)


CODES = tuple(code for code, _ in _pairs(_LANGUAGES))
"""Language codes in token order."""

_BY_NAME = {name: code for code, name in (*_pairs(_LANGUAGES), *_pairs(_OTHER_NAMES))}


def language_code(language: str) -> str:
    """``"en"`` for ``"en"``, ``"English"`` or ``"<|en|>"``; what is not known comes back in lower case."""
    plain = language.strip().removeprefix("<|").removesuffix("|>").lower()
    return _BY_NAME.get(plain, plain)
