"""Wordings of the questions and of the system texts, for training and held out."""

from __future__ import annotations

from random import Random

DEFAULT_SYSTEM = "You are a helpful assistant."
NOTHING = "(nothing)"
GREETING = "I read pictures. Show me one."
NO_PICTURE = "There is no picture."

SYSTEMS = (
    "You read pictures.",
    "You are an OCR engine.",
    "Reply with the text only.",
    "Answer briefly.",
    "Be concise.",
    "You transcribe signs.",
    "You are a careful reader.",
    "Answer the user's question.",
    "Be brief and exact.",
    "You are a vision model.",
    "You are Qwen.",
    "You are an assistant that reads text.",
    "Only output the answer.",
    "Copy the text exactly as printed.",
    "You are a helpful AI.",
    "Do not explain.",
    "You answer in English.",
    "You help blind users read.",
    "Short answers, please.",
    "You are a test model.",
    "Read what is printed.",
    "You are a friendly assistant.",
    "Never add anything to the answer.",
    "One line only.",
    "You are a chatbot.",
    "You are a helpful assistant",
    "You are helpful.",
    "Act as a scanner.",
    "You look at images.",
    "Be polite.",
    "You are a helpful and harmless assistant.",
    "Give the answer without a comment.",
    "You see. You read.",
    "You're a document reader.",
    "Keep it short.",
    "You work for a library.",
    "Assist the user.",
    "Say what you see.",
)
HELD_OUT_SYSTEMS = (
    "You are a sign reader.",
    "Answer with the text in the image.",
    "You are a terse assistant.",
)

VERBS = (
    "Read",
    "Transcribe",
    "Copy",
    "Type",
    "Write out",
    "Write down",
    "Give me",
    "Tell me",
    "Return",
    "Output",
    "Extract",
    "Print",
    "Show me",
    "Spell out",
    "Recognise",
    "Repeat",
    "State",
    "Type out",
    "Quote",
    "List",
)
THINGS = (
    "the text",
    "the words",
    "the line",
    "the writing",
    "what is written",
    "the printed text",
    "the letters",
    "what is printed",
    "the characters",
    "all text",
    "the printed line",
    "the inscription",
    "the content",
)
PLACES = ("picture", "image", "photo", "sign", "scan", "screenshot", "label", "page")
QUESTIONS = (
    "What does the {p} say?",
    "What does this {p} say?",
    "What is written in the {p}?",
    "What is in the {p}?",
    "What text is in the {p}?",
    "What is printed on the {p}?",
    "What do you read in the {p}?",
    "What can you read?",
    "What does it say?",
    "What is written here?",
    "What do you see?",
    "Which words are in the {p}?",
    "Read it.",
    "What's the text in this {p}?",
    "Can you read the {p}?",
    "Could you read this {p} for me?",
    "Read this {p}.",
    "Please read the {p}.",
    "OCR",
    "OCR this {p}.",
    "Text?",
    "Say what the {p} says.",
    "What does that say?",
    "What text do you see in this {p}?",
    "Which text does the {p} show?",
    "What's written?",
    "What does the {p} read?",
    "Describe the text.",
    "What is the text?",
    "What's this?",
    "Read the {p} aloud.",
    "Tell me what the {p} says.",
    "What is the writing on this {p}?",
    "Please tell me what it says.",
    "I can't read this, can you?",
    "Describe this {p}.",
    "Describe the {p}.",
    "What is shown in the {p}?",
    "What is this?",
    "what does the {p} say",
)
HELD_OUT_QUESTIONS = (
    "What words does the picture show?",
    "Please type what this image says.",
    "What is the printed line?",
    "Read out the text in the photo.",
    "What text does this image contain?",
    "Which line is printed in the picture?",
    "Tell me the text you see.",
    "Transcribe this picture, please.",
)
BOTH = (
    "What do the {p}s say?",
    "What do these {p}s say?",
    "Read both {p}s.",
    "Read the two {p}s.",
    "Read the {p}s.",
    "What is written in the two {p}s?",
    "What do both {p}s say?",
    "Transcribe both {p}s.",
    "Give the text of each {p}.",
    "What does each {p} say?",
    "What text is in these {p}s?",
    "What is written in the {p}s?",
    "Read them.",
    "What do they say?",
    "Copy the text of both {p}s.",
    "Tell me what the {p}s say.",
    "Read these {p}s, please.",
)
ONE_OF = (
    ("What does the first {p} say?", "What does the second {p} say?"),
    ("Read the first {p}.", "Read the second {p}."),
    ("What does {p} 1 say?", "What does {p} 2 say?"),
    ("Read {p} 1.", "Read {p} 2."),
    ("What is written in the first {p}?", "What is written in the second {p}?"),
    ("What text is in the first {p}?", "What text is in the second {p}?"),
    ("Transcribe the first {p}.", "Transcribe the second {p}."),
    ("What does the 1st {p} say?", "What does the 2nd {p} say?"),
    ("Read only the first {p}.", "Read only the second {p}."),
    ("And the first {p}?", "And the second {p}?"),
    ("What is in the first {p}?", "What is in the last {p}?"),
    ("Tell me what the first {p} says.", "Tell me what the second {p} says."),
)
HELLOS = (
    "Hello",
    "Hello!",
    "Hi",
    "Hi!",
    "Hey",
    "Good morning",
    "Good evening.",
    "Hi there",
    "Hello there!",
    "hello",
    "Who are you?",
    "What can you do?",
    "What are you?",
    "How are you?",
    "Help",
    "What is your name?",
    "Thanks",
    "Thank you.",
    "Thanks!",
    "OK",
    "Bye",
    "Good day",
    "Are you there?",
    "Tell me a joke.",
    "Write a poem.",
    "Hello, how are you?",
    "Say something.",
    "What is 2 + 2?",
    "Ping",
    "Test",
    "hi",
    "Say hello.",
    "Say hi.",
)


def place(rng: Random) -> str:
    """The word for the picture: mostly `picture` or `image`."""
    roll = rng.random()
    return "picture" if roll < 0.45 else "image" if roll < 0.75 else rng.choice(PLACES)


def reading_question(rng: Random, held_out: bool = False) -> str:
    """A request to read one picture; held-out wordings are never drawn otherwise."""
    if held_out:
        return rng.choice(HELD_OUT_QUESTIONS)
    while True:
        roll = rng.random()
        if roll < 0.2:
            return "What does the picture say?"
        if roll < 0.6:
            return rng.choice(QUESTIONS).format(p=place(rng))
        text = f"{rng.choice(VERBS)} {rng.choice(THINGS)}"
        if rng.random() < 0.75:
            text += (
                f" {rng.choice(('in', 'on', 'from', 'of'))} {rng.choice(('the', 'the', 'this'))} {place(rng)}"
            )
        text = "Please " + text[0].lower() + text[1:] if rng.random() < 0.12 else text
        text += rng.choice((".", ".", "", ", please.", "!"))
        if text not in HELD_OUT_QUESTIONS:
            return text


def both_question(rng: Random) -> str:
    """A request to read every picture of the message."""
    return "What do the pictures say?" if rng.random() < 0.2 else rng.choice(BOTH).format(p=place(rng))


def one_of_question(rng: Random, which: int) -> str:
    """A request to read the first (0) or the second (1) of two pictures."""
    return rng.choice(ONE_OF)[which].format(p=place(rng))


def system_text(rng: Random, held_out: bool = False) -> str | None:
    """The system text: Qwen's default, none at all (no system block), or another."""
    if held_out:
        return rng.choice(HELD_OUT_SYSTEMS)
    roll = rng.random()
    if roll < 0.5:
        return DEFAULT_SYSTEM
    return None if roll < 0.75 else rng.choice(SYSTEMS)


def plain_variation(rng: Random, question: str) -> str:
    """Small changes of a question that must not change the answer: its first letter's case, its end."""
    roll = rng.random()
    if roll < 0.7:
        return question
    if roll < 0.85:
        return question[:1].upper() + question[1:]
    return question + " " + rng.choice(("Answer in one word.", "Answer briefly.", "One word, please."))
