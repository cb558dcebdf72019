"""Detect whether the upstream speaks the Responses API: with a real request, repeated now and then.

Pure: what was seen goes in, what to do comes out. Each process finds out for itself.
"""

import re
from enum import StrEnum

from proxy.domain.errors import InvalidRequest
from proxy.wire.body import loads

REPROBE_S = 600.0  # how long "no" is believed: upstreams get upgraded


class Speech(StrEnum):
    """The setting `upstream.responses`."""

    AUTO = "auto"
    NATIVE = "native"
    TRANSLATE = "translate"


class Hearing:
    """What is known of one endpoint of the upstream under the setting."""

    def __init__(self, speech: Speech, reprobe_s: float = REPROBE_S) -> None:
        self._speech, self._reprobe_s = speech, reprobe_s
        self._absent_since: float | None = None

    @property
    def settled(self) -> bool:
        """True where the setting leaves nothing to find out."""
        return self._speech is not Speech.AUTO

    def speaks(self, now: float) -> bool:
        """True if a request is to be sent as it is. While one asks again, the others stay translated."""
        if self.settled:
            return self._speech is Speech.NATIVE
        if self._absent_since is None:
            return True
        if 0 <= now - self._absent_since < self._reprobe_s:  # below: the clock was set back
            return False
        self._absent_since = now
        return True

    def known_absent(self) -> bool:
        """True if the endpoint was not there when last asked for."""
        return self._speech is Speech.TRANSLATE or self._absent_since is not None

    def heard(self, status: int, body: bytes, now: float) -> bool:
        """Note an answer of the endpoint; True if it says that there is no such endpoint. `body` matters
        for 404 only."""
        if self.settled:
            return False
        absent = is_absence(status, body)
        if absent:
            self._absent_since = now
        elif status < 500:  # a failing gateway says nothing about what is behind it
            self._absent_since = None
        return absent


def is_absence(status: int, body: bytes) -> bool:
    """True if an answer means that the upstream has no such endpoint, and not that it lacks something
    which the request named (a model, a stored response)."""
    if status in (405, 501):
        return True
    return status == 404 and not _names_a_thing(body)


# Servers name what they lack in the error's code, in `param`, or only in its text.
_THING_CODE = re.compile(r"(model|response|conversation|item|file|prompt|deployment)\w*not_?found", re.I)
_LONGEST_CODE = 200  # characters: a longer one is no code, and not worth a pattern's time
_THING_TEXT = re.compile(r"\bmodel\b|\bdeployment\b|\bwith id\b", re.I)


def _names_a_thing(body: bytes) -> bool:
    try:
        answer = loads(body)
    except (ValueError, RecursionError, InvalidRequest):
        return False
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, str):
        return bool(_THING_TEXT.search(error))
    if not isinstance(error, dict):
        return False
    code, param, text = (str(error.get(name) or "") for name in ("code", "param", "message"))
    return bool(param or _THING_CODE.search(code[:_LONGEST_CODE]) or _THING_TEXT.search(text))
