"""The messages that tell a person why the write gate refused to store something."""

from proxy.background.safety.filters import reject
from proxy.background.safety.policy import SafetyPolicy
from proxy.domain import Candidate

_WORDS = {
    "empty": "it says nothing",
    "too_long": "it is too long for one memory; split it into single facts",
    "garbled": "it holds broken characters",
    "planted": "it reads like an instruction planted for the assistant",
    "echo": "it repeats a block of injected memories",
}
_SENSITIVE = "it holds what looks like a secret or an identifying number"


def refusal_of(candidate: Candidate, policy: SafetyPolicy) -> tuple[str, str] | None:
    """Return why the candidate must not be stored, as a constant word and in words; None if it may."""
    reason = reject(candidate, policy)
    return (reason, _WORDS.get(reason, _SENSITIVE)) if reason else None
