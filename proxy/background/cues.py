"""What a user's own words are: an explicit ask to remember, or a statement about themselves.

Rules, one row per language, matched on the folded text (no case, no accents). They decide only how
soon an exchange is extracted and what `verbatim` keeps, so they lean towards yes for short, real
statements ("I'm vegan") and towards no for requests ("I need help with …").
"""

import re

from proxy.background.cue_table import LANGUAGES
from proxy.terms import fold


def _any(name: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{getattr(row, name)})" for row in LANGUAGES), re.MULTILINE)


_EXPLICIT, _PERSONAL, _NOT_PERSONAL = _any("explicit"), _any("personal"), _any("not_personal")
_COMMAND, _QUESTION = _any("command"), _any("question")
_SUPPOSED, _TRANSIENT = _any("supposed"), _any("transient")

# Whose words they are not: code, quoted lines, markup, and quotations longer than a name.
_FOREIGN = re.compile(
    r"```.*?(?:```|\Z)|<!--.*?(?:-->|\Z)|<[a-zA-Z/][^<>]{0,500}>|^[ \t]*(?:>|\$ |//|#!).*$|^(-{3,}).*?^\1.*?$"
    r"|\"[^\"\n]{25,2000}\"|“[^”\n]{25,2000}”|「[^」\n]{25,2000}」",
    re.DOTALL | re.MULTILINE,
)
# A full stop inside 3.14 or e.g. ends nothing; a CJK full stop always does.
_SENTENCE = re.compile(r".+?(?:[.!?]+[\"')\]]*(?=\s|\Z)|[\u3002\uff01\uff1f…]+|\Z)")
_CLAUSE = re.compile(r"(?<=[,;\uff0c\uff1b])\s*|\s+[-–—]\s+")
_SEPARATORS = " ,;\uff0c\uff1b"
_LOOK_AT = 8_000  # characters: what is longer is pasted, and its beginning and end tell


def own_words(text: str) -> str:
    """Return the text without code, quotations, quoted lines and markup; bounded."""
    if len(text) > _LOOK_AT:
        text = f"{text[: _LOOK_AT // 2]}\n{text[-_LOOK_AT // 2 :]}"
    return _FOREIGN.sub("\n", text)


def sentences(text: str) -> list[str]:
    """Return the sentences of prose, in order, stripped, a line break ending one."""
    return [s for line in text.splitlines() for m in _SENTENCE.finditer(line) if (s := m.group().strip())]


def is_explicit(text: str) -> bool:
    """True if the user asks to remember something or sets a rule for the future."""
    return any(
        _EXPLICIT.search(folded) and not folded.endswith("?")
        for folded in map(_folded, sentences(own_words(text)))
    )


def is_personal(text: str) -> bool:
    """True if the user states something about themselves. Questions and requests alone do not."""
    return bool(statements(text))


def statements(text: str) -> list[str]:
    """Return the declarative first-person sentences (of a question: its leading clauses) as said."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", own_words(text)):
        for sentence in sentences(paragraph):
            if _SUPPOSED.search(_folded(sentence)):
                break  # what follows in the paragraph belongs to the fiction
            found += _stated(sentence)
    return found


def _stated(sentence: str) -> list[str]:
    asks = _folded(sentence).endswith("?") or _QUESTION.search(_folded(sentence))
    if not asks:
        return [sentence] if _is_statement(sentence) else []
    clauses = [c.strip(_SEPARATORS) for c in _CLAUSE.split(sentence) if c]
    return [c for c in clauses[:-1] if _is_statement(c) and not _QUESTION.search(_folded(c))]


def _is_statement(sentence: str) -> bool:
    folded = _folded(sentence)
    if _EXPLICIT.search(folded):
        return True
    if not _PERSONAL.search(folded):
        return False
    return not any(p.search(folded) for p in (_NOT_PERSONAL, _COMMAND, _TRANSIENT))


def _folded(text: str) -> str:
    return fold(text).replace("’", "'")
