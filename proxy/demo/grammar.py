"""Change the person of an English sentence: "I live" to "User lives", "User lives" to "you live".

Word by word and by small tables, which is enough for the plain sentences of a demo. Chinese needs only
the pronoun changed.
"""

import re
from collections.abc import Iterator

_WORD = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)*")

_FIRST, _AGAIN = 0, 1  # column: how the user is called at first, and afterwards
_SUBJECTS = {
    "i": ("User", "they"),
    "we": ("User", "they"),
    "i'm": ("User is", "they are"),
    "im": ("User is", "they are"),
    "we're": ("User is", "they are"),
    "i've": ("User has", "they have"),
    "ive": ("User has", "they have"),
    "we've": ("User has", "they have"),
    "i'd": ("User would", "they would"),
    "we'd": ("User would", "they would"),
    "i'll": ("User will", "they will"),
    "we'll": ("User will", "they will"),
}
_OTHERS = {
    "my": ("User's", "their"),
    "our": ("User's", "their"),
    "mine": ("User's", "theirs"),
    "ours": ("User's", "theirs"),
    "me": ("User", "them"),
    "us": ("User", "them"),
    "myself": ("User", "themselves"),
    "ourselves": ("User", "themselves"),
}
_SECOND = {
    "they": "you",
    "them": "you",
    "their": "your",
    "theirs": "yours",
    "themselves": "yourself",
    "they're": "you're",
    "they've": "you've",
}
_SINGULAR = {
    "am": "is",
    "are": "is",
    "were": "was",
    "have": "has",
    "haven't": "hasn't",
    "do": "does",
    "don't": "does not",
    "dont": "does not",
    "aren't": "is not",
    "weren't": "was not",
    "go": "goes",
}
_PLURAL = {"am": "are", "was": "were", "wasn't": "were not"}
_YOU = {"is": "are", "was": "were", "has": "have", "does": "do", "goes": "go", "isn't": "aren't"}
_UNCHANGING = frozenset(
    "can can't cannot could couldn't will won't would wouldn't should shouldn't must mustn't may might"
    " didn't hadn't used went got bought had did made took saw came met told said found left lost sold ate"
    " drank flew drove began broke chose wrote gave knew thought taught kept felt grew heard held led paid"
    " ran sent slept spent spoke stood swam woke won wore was is has does quit put set cut hit let hurt read"
    " became built caught fell forgot hid lent meant rode sang sat shot stuck threw understood wasn't".split()
)
_ADVERBS = frozenset(
    "always never often also just still now only ever usually sometimes not too both all".split()
)
_NOT_ADVERBS = frozenset("apply reply supply rely fly bully rally tally ally".split())
_IRREGULAR_S = frozenset(_ADVERBS | {"this", "us", "always", "perhaps", "sometimes", "besides"})


def third_person(clause: str) -> str:
    """Return a first-person clause about "User": "I'm allergic" becomes "User is allergic"."""
    # "My wife and I" would become "User's wife and they"; the other order reads well.
    clause = re.sub(r"^(my|our) ([\w ]{1,30}) and I\b", r"I and \1 \2", clause, flags=re.IGNORECASE)
    out: list[str] = []
    form = _FIRST
    awaits_verb = False
    for text, is_word in _pieces(clause):
        word = text.lower().replace("’", "'")
        if is_word and word in _SUBJECTS:
            out.append(_SUBJECTS[word][form])
            awaits_verb, verb_form, form = word in ("i", "we"), form, _AGAIN
        elif is_word and word in _OTHERS:
            out.append(_OTHERS[word][form])
            awaits_verb, form = False, _AGAIN
        elif is_word and awaits_verb and not _is_adverb(word):
            out.append(_agree(text, word, verb_form))
            awaits_verb = False
        else:
            out.append(text)
    return "".join(out)


def second_person(content: str) -> str:
    """Return a remembered fact as said to the user: "User lives in Rome" becomes "you live in Rome"."""
    if "用户" in content:
        return content.replace("用户", "你")
    content = re.sub(r"\bthe (?=user\b)", "", content, flags=re.IGNORECASE)
    if not re.search(r"\buser\b", content, flags=re.IGNORECASE):
        return content
    content = content.replace("the assistant", "me")
    out: list[str] = []
    awaits_verb = False
    for text, is_word in _pieces(content):
        word = text.lower().replace("’", "'")
        if is_word and word in ("user", "user's"):
            out.append("you" if word == "user" else "your")
            awaits_verb = word == "user"
        elif is_word and word in _SECOND:
            out.append(_SECOND[word])
        elif is_word and awaits_verb and not _is_adverb(word):
            out.append(_base_form(text, word))
            awaits_verb = False
        else:
            out.append(text)
    return "".join(out)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the words and what stands between them; joined they are the text."""
    end = 0
    for match in _WORD.finditer(text):
        if match.start() > end:
            yield text[end : match.start()], False
        yield match.group(), True
        end = match.end()
    if end < len(text):
        yield text[end:], False


def _is_adverb(word: str) -> bool:
    return word in _ADVERBS or (word.endswith("ly") and len(word) > 4 and word not in _NOT_ADVERBS)


def _agree(text: str, word: str, form: int) -> str:
    """Return the verb as it stands after "User" (third person singular) or after "they"."""
    if form == _AGAIN:
        return _PLURAL.get(word, text)
    if word in _SINGULAR:
        return _SINGULAR[word]
    past = word.endswith("ed") and not word.endswith("eed")
    if past or word in _UNCHANGING or word in ("and", "or"):
        return text
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return text[:-1] + "ies"
    return text + ("es" if word.endswith(("s", "x", "z", "ch", "sh")) else "s")


def _base_form(text: str, word: str) -> str:
    """Return the verb as it stands after "you"."""
    if word in _YOU:
        return _YOU[word]
    if not word.endswith("s") or word.endswith("ss") or word in _IRREGULAR_S:
        return text
    if word.endswith("ies") and len(word) > 4:
        return text[:-3] + "y"
    return text[:-2] if word.endswith(("ches", "shes", "sses", "xes", "zes")) else text[:-1]
