"""The font families that lines are drawn in, and the one family that training never sees.

Every face comes from a Debian 12 package; the licences allow any use of rendered text. The fonts
themselves are not part of this repository: `prepare.py` collects them from an unpacked font folder.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """One font family: the faces' file names, the Debian package that holds them, its licence."""

    name: str
    package: str
    licence: str
    faces: tuple[str, ...]


def _four(stem: str, ext: str, styles: str = "Regular Bold Italic BoldItalic") -> tuple[str, ...]:
    return tuple(f"{stem}-{style}.{ext}" for style in styles.split())


_GYRE = "regular bold italic bolditalic"
_OBLIQUE = "Bold Oblique BoldOblique"

TRAIN_FAMILIES: tuple[Family, ...] = (
    Family(
        "DejaVu Sans",
        "fonts-dejavu-core",
        "Bitstream Vera",
        ("DejaVuSans.ttf", *_four("DejaVuSans", "ttf", _OBLIQUE), "DejaVuSansCondensed.ttf"),
    ),
    Family(
        "DejaVu Serif",
        "fonts-dejavu-core",
        "Bitstream Vera",
        ("DejaVuSerif.ttf", *_four("DejaVuSerif", "ttf", "Bold Italic BoldItalic")),
    ),
    Family(
        "DejaVu Sans Mono",
        "fonts-dejavu-core",
        "Bitstream Vera",
        ("DejaVuSansMono.ttf", *_four("DejaVuSansMono", "ttf", _OBLIQUE)),
    ),
    Family("Liberation Sans", "fonts-liberation2", "OFL-1.1", _four("LiberationSans", "ttf")),
    Family("Liberation Serif", "fonts-liberation2", "OFL-1.1", _four("LiberationSerif", "ttf")),
    Family("Liberation Mono", "fonts-liberation2", "OFL-1.1", _four("LiberationMono", "ttf")),
    Family(
        "FreeSans",
        "fonts-freefont-ttf",
        "GPL-3+ with font exception",
        ("FreeSans.ttf", "FreeSansBold.ttf", "FreeSansOblique.ttf"),
    ),
    Family(
        "FreeSerif",
        "fonts-freefont-ttf",
        "GPL-3+ with font exception",
        ("FreeSerif.ttf", "FreeSerifBold.ttf", "FreeSerifItalic.ttf"),
    ),
    Family(
        "FreeMono", "fonts-freefont-ttf", "GPL-3+ with font exception", ("FreeMono.ttf", "FreeMonoBold.ttf")
    ),
    Family("Lato", "fonts-lato", "OFL-1.1", _four("Lato", "ttf", "Regular Bold Italic Light Black")),
    Family("Carlito", "fonts-crosextra-carlito", "OFL-1.1", _four("Carlito", "ttf")),
    Family("Caladea", "fonts-crosextra-caladea", "OFL-1.1", _four("Caladea", "ttf")),
    Family(
        "Open Sans",
        "fonts-open-sans",
        "Apache-2.0",
        _four("OpenSans", "ttf", "Regular Bold Italic BoldItalic Light ExtraBold CondBold"),
    ),
    Family("Cantarell", "fonts-cantarell", "OFL-1.1", _four("Cantarell", "otf", "Regular Bold Light")),
    Family("Fira Code", "fonts-firacode", "OFL-1.1", _four("FiraCode", "ttf", "Regular Bold Light")),
    Family("Hack", "fonts-hack", "MIT and Bitstream Vera", _four("Hack", "ttf", "Regular Bold Italic")),
    Family("Inconsolata", "fonts-inconsolata", "OFL-1.0", ("Inconsolata.otf",)),
    Family(
        "Linux Libertine",
        "fonts-linuxlibertine",
        "OFL-1.1 or GPL-2+ with font exception",
        ("LinLibertine_R.otf", "LinLibertine_RB.otf", "LinLibertine_RI.otf"),
    ),
    Family(
        "Linux Biolinum",
        "fonts-linuxlibertine",
        "OFL-1.1 or GPL-2+ with font exception",
        ("LinBiolinum_R.otf", "LinBiolinum_RB.otf", "LinBiolinum_RI.otf"),
    ),
    Family("Gentium Plus", "fonts-sil-gentiumplus", "OFL-1.1", _four("GentiumPlus", "ttf")),
    Family("Charis SIL", "fonts-sil-charis", "OFL-1.1", _four("CharisSIL", "ttf")),
    Family("Andika", "fonts-sil-andika", "OFL-1.1", _four("Andika", "ttf")),
    Family("Cabin", "fonts-cabin", "OFL-1.1", _four("Cabin", "otf")),
    Family(
        "B612",
        "fonts-b612",
        "OFL-1.1, EPL-2.0 and EDL-1.0",
        (*_four("B612", "otf"), *_four("B612Mono", "otf", "Regular Bold")),
    ),
    Family("Go", "fonts-go", "BSD-3-Clause", _four("Go", "ttf", "Regular Bold Italic Medium Mono Mono-Bold")),
    Family(
        "TeX Gyre Heros",
        "fonts-texgyre",
        "GUST Font License",
        (*_four("texgyreheros", "otf", _GYRE), "texgyreheroscn-regular.otf"),
    ),
    Family("TeX Gyre Termes", "fonts-texgyre", "GUST Font License", _four("texgyretermes", "otf", _GYRE)),
    Family("TeX Gyre Pagella", "fonts-texgyre", "GUST Font License", _four("texgyrepagella", "otf", _GYRE)),
    Family("TeX Gyre Bonum", "fonts-texgyre", "GUST Font License", _four("texgyrebonum", "otf", _GYRE)),
    Family("TeX Gyre Schola", "fonts-texgyre", "GUST Font License", _four("texgyreschola", "otf", _GYRE)),
    Family(
        "TeX Gyre Adventor",
        "fonts-texgyre",
        "GUST Font License",
        _four("texgyreadventor", "otf", "regular bold"),
    ),
    Family(
        "TeX Gyre Cursor", "fonts-texgyre", "GUST Font License", _four("texgyrecursor", "otf", "regular bold")
    ),
    Family("STIX", "fonts-stix", "OFL-1.1", _four("STIX", "otf")),
    Family(
        "JetBrains Mono",
        "fonts-jetbrains-mono",
        "Apache-2.0",
        _four("JetBrainsMono", "ttf", "Regular Bold Italic"),
    ),
    Family(
        "Courier Prime", "fonts-courier-prime", "OFL-1.1", ("Courier Prime.otf", "Courier Prime Bold.otf")
    ),
    Family("Noto Sans", "fonts-noto-core", "OFL-1.1", _four("NotoSans", "ttf")),
    Family("Noto Serif", "fonts-noto-core", "OFL-1.1", _four("NotoSerif", "ttf")),
    Family("Noto Sans Mono", "fonts-noto-core", "OFL-1.1", _four("NotoSansMono", "ttf", "Regular Bold")),
    Family("Inter", "fonts-inter", "OFL-1.1", _four("Inter", "otf", "Regular Bold Italic Medium")),
    Family(
        "Clear Sans",
        "fonts-clear-sans",
        "Apache-2.0",
        _four("ClearSans", "ttf", "Regular Bold Italic Medium"),
    ),
    Family("Oxygen", "fonts-oxygen", "OFL-1.1", ("Oxygen-Sans.ttf", "Oxygen-Sans-Bold.ttf")),
    Family("Play", "fonts-play", "OFL-1.1", ("Play-Regular.ttf", "Play-Bold.ttf")),
    Family("Quicksand", "fonts-quicksand", "OFL-1.1", _four("Quicksand", "ttf", "Regular Bold Medium")),
    Family("Karla", "fonts-karla", "OFL-1.1", _four("Karla", "otf", "Regular Bold Italic")),
    Family(
        "Gillius ADF",
        "fonts-adf-gillius",
        "GPL-2+ with font exception",
        _four("GilliusADF", "otf", "Regular Bold Italic"),
    ),
    Family("Mononoki", "fonts-mononoki", "OFL-1.1", _four("mononoki", "ttf", "Regular Bold")),
    Family("Anonymous Pro", "fonts-anonymous-pro", "OFL-1.1", ("Anonymous Pro.ttf", "Anonymous Pro B.ttf")),
)

HELD_OUT_FAMILY = Family(
    "Roboto",
    "fonts-roboto-unhinted",
    "Apache-2.0",
    _four("Roboto", "ttf", "Regular Bold Italic BoldItalic Medium Light"),
)
