"""Decide whether a text shows that it is about the user: it says I, my, we, or refers to what was said
before.
"""

import re

from proxy.terms import fold, plain
from proxy.wordlists import any_of, whole_words


def is_personal(text: str) -> bool:
    """True if the text says I, my, we … in one of the known languages, requests ("tell me") aside."""
    # "US" is a country, "us" is we: told apart before folding.
    if re.search(r"\bus\b", text):
        return True
    folded = _REQUEST.sub(" ", plain(text))
    return bool(_PERSONAL.search(folded))


def points_back(text: str) -> bool:
    """True if the text leans on something said before ("that one", "again", "上次")."""
    return bool(_POINTER.search(fold(text)))


_REQUEST = re.compile(any_of("personal", "requests"))
# Spanish and Portuguese verbs say "we" in their ending; "gramos" is no verb.
_WE = (
    r"\b(?!(?:\w*gramos|ultimos|proximos|maximos|minimos|primos|\w*onimos|decimos|extremos|tramos|ramos"
    r"|optimos|racimos)\b)\w{2,}(?:amos|emos|imos)\b"
)
_MY = r"(?<!\w)[내제] "  # in Korean: one syllable that stands alone
_PERSONAL = re.compile(rf"{whole_words('personal', 'personal')}|{_WE}|{_MY}")
_POINTER = re.compile(whole_words("personal", "pointers"))
