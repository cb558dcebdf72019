"""Recognise a retry: when the same words in a session without history are the same request, sent again.

A client sends them again soon. A person who has said something else meanwhile, in whatever session, says
them anew: they may have changed their mind, and changed it back. So does who comes long before the first
time, by a clock that was set back. What is still being answered is the same request whatever was said
elsewhere. In doubt it is said anew: read twice, a fact is stored once; not read, it is lost.
"""

from proxy.domain.core import NewExchange

WITHIN_S = 60.0  # a client's own retries come sooner
UNFINISHED_WITHIN_S = 3600.0  # a person's, of what was never wholly answered
OPENING_WITHIN_S = 3600.0


def is_retry(new: NewExchange, *, key: str, whole: bool, at: float) -> bool:
    """True if the exchange repeats the session's last one: `key`, `whole` and `at` as that was stored, and
    unless something else was said in between.

    The key may have a suffix, which tells it from the same words said before."""
    within_s = WITHIN_S if whole else UNFINISHED_WITHIN_S
    return key.partition(":")[0] == new.key and abs(new.at - at) < within_s


def is_opening(new: NewExchange, *, at: float) -> bool:
    """True if the first words of a conversation that brings its history are its beginning, sent again: `at`
    as that was stored, and unless something else was said elsewhere in between.

    Who names a session would name another conversation otherwise, and may send a whole transcript again."""
    return abs(new.at - at) < OPENING_WITHIN_S


def said_anew(key: str, seq: int) -> str:
    """Return the key of the exchange that says the same anew after the one with this number."""
    return f"{key}:{seq}"
