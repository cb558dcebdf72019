"""Classify the user's own words: an explicit request to remember, or a statement about themselves.

Rules and words of many languages, matched on the folded text (no case, no accents). They decide only how
soon an exchange is extracted and what `verbatim` keeps, so they lean towards yes for short, real
statements ("I'm vegan") and towards no for requests ("I need help with …").
"""

import re
from collections.abc import Iterator

from proxy.background.extraction.cue_table import LANGUAGES
from proxy.sentences import sentences
from proxy.terms import plain
from proxy.wordlists import whole_words


def _any(name: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{getattr(row, name)})" for row in LANGUAGES), re.MULTILINE)


def _said(section: str, *besides: str) -> re.Pattern[str]:
    return re.compile("|".join((whole_words("cues", section), *besides)), re.MULTILINE)


_EXPLICIT, _PERSONAL, _NOT_PERSONAL = _any("explicit"), _any("personal"), _any("not_personal")
_COMMAND, _QUESTION, _CHATTER = _any("command"), _any("question"), _any("chatter")
_SUPPOSED, _TRANSIENT, _HEDGED, _PRIVATE = map(_said, ("supposed", "transient", "hedged", "private"))
_RESUMED = _said(
    "resumed", r"^\W*(?:by the way|btw|on another note)\b", r"\b(?:шутки в сторону|ладно,|кстати)"
)
# Figures of speech: nothing is supposed.
_NOT_SUPPOSED = re.compile(
    r"\b(?:i imagine|you can imagine|can'?t imagine|i suppose|as you can imagine|what if (?:you|we|it))\b"
)

# Whose words they are not: code, quoted lines, markup, and quotations longer than a name.
_FOREIGN = re.compile(
    r"```.*?(?:```|\Z)|<!--.*?(?:-->|\Z)|<[a-zA-Z/][^<>]{0,500}>|^[ \t]*+(?:>|\$ |//|#!).*$"
    r"|^(-{3,80}).*?^\1.*?$"
    r"|\"[^\"\n]{25,2000}+\"|“[^”\n]{25,2000}+”|「[^」\n]{25,2000}+」",
    re.DOTALL | re.MULTILINE,
)
_CLAUSE = re.compile(r"(?<=[,;\uff0c\uff1b])\s*|(?<!\s)\s++[-–—]\s+")
_SEPARATORS = " ,;\uff0c\uff1b"
_CLOSING = " \"')]”’」』"
_LOOK_AT = 8_000  # characters: what is longer is pasted, and its beginning and end tell


def own_words(text: str) -> str:
    """Return the text without code, quotations, quoted lines and markup; bounded."""
    if len(text) > _LOOK_AT:
        text = f"{text[: _LOOK_AT // 2]}\n{text[-_LOOK_AT // 2 :]}"
    return _FOREIGN.sub("\n", text)


def is_explicit(text: str) -> bool:
    """True if the user asks to remember something or sets a rule for the future."""
    return any(
        _EXPLICIT.search(folded) and not folded.endswith("?")
        for folded in map(plain, sentences(own_words(text)))
    )


def is_personal(text: str) -> bool:
    """True if the user states something about themselves. Questions and requests alone do not."""
    return bool(statements(text))


def statements(text: str) -> list[str]:
    """Return the declarative first-person sentences (of a question: its leading clauses) as said."""
    found: list[str] = []
    for paragraph in paragraphs(own_words(text)):
        found += (part for sentence in meant(paragraph) for part in asserted(sentence) if _is_statement(part))
    return found


def paragraphs(text: str) -> list[str]:
    """Return the parts of the text between empty lines."""
    return re.split(r"\n\s*\n", text)


def meant(paragraph: str) -> list[str]:
    """Return the paragraph's sentences outside of any fiction or hypothesis."""
    return [sentence for sentence, fiction in _by_reality(paragraph) if not fiction]


def supposed(paragraph: str) -> list[str]:
    """Return the sentences of the paragraph's fictions: from the words that open one to those that end it."""
    return [sentence for sentence, fiction in _by_reality(paragraph) if fiction]


def _by_reality(paragraph: str) -> Iterator[tuple[str, bool]]:
    fiction = False
    for sentence in sentences(paragraph):
        folded = plain(sentence)
        end = max((m.end() for m in _RESUMED.finditer(folded)), default=0)
        if end:
            fiction = False
        if not _NOT_SUPPOSED.search(folded):
            fiction = fiction or bool(_SUPPOSED.search(folded, end))
        yield sentence, fiction


def asserted(sentence: str) -> list[str]:
    """Return what the sentence asserts: all of it, of a question its leading clauses."""
    if not asks(sentence):
        return [sentence]
    clauses = [c.strip(_SEPARATORS) for c in _CLAUSE.split(sentence) if c]
    return [c for c in clauses[:-1] if not _QUESTION.search(plain(c))]


def asks(sentence: str) -> bool:
    """True for a question, with or without its mark."""
    folded = plain(sentence)
    return folded.rstrip(_CLOSING).endswith("?") or bool(_QUESTION.search(folded))


def commands(sentence: str) -> bool:
    """True for a request to the assistant, to be fulfilled now."""
    folded = plain(sentence)
    return bool(_COMMAND.search(folded)) and not _EXPLICIT.search(folded)


def speaks_of_self(sentence: str) -> bool:
    """True if the sentence states something in the first person."""
    return bool(_PERSONAL.search(plain(sentence))) and not declines(sentence)


def declines(sentence: str) -> bool:
    """True if the sentence begins in the first person, and yet asks or chats ("I wonder …")."""
    return bool(_NOT_PERSONAL.search(plain(sentence)))


def is_chatter(sentence: str) -> bool:
    """True if the sentence begins as a reaction, a greeting or an aside does."""
    return bool(_CHATTER.search(plain(sentence)))


def is_hedged(text: str) -> bool:
    """True if the text says that something is not sure, or not decided."""
    return bool(_HEDGED.search(plain(text)))


def is_confidential(text: str) -> bool:
    """True for other people's private matters, and for what was told in confidence."""
    return bool(_PRIVATE.search(plain(text)))


def is_fleeting(text: str) -> bool:
    """True for what holds for minutes only."""
    return bool(_TRANSIENT.search(plain(text)))


def _is_statement(sentence: str) -> bool:
    folded = plain(sentence)
    if _EXPLICIT.search(folded):
        return True
    if not _PERSONAL.search(folded):
        return False
    return not any(p.search(folded) for p in (_NOT_PERSONAL, _COMMAND, _TRANSIENT))
