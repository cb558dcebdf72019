"""Which session a request belongs to, without asking a store.

An id that the client names, else a fingerprint of the conversation: its system text and first user
message, which an unmodified chat client repeats in every request of the conversation.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from proxy.domain.core import Message, Scope
from proxy.text.markup import behind_thoughts


def fingerprint(scope: Scope, conversation: str) -> str:
    """Return the session id of an unnamed conversation: equal for equal scope and beginning."""
    return "sess_" + _digest(scope.tenant, scope.user, scope.project or "", conversation)


def opening(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the conversation up to the first answer to what the user said last: what the exchange began
    with, also while tools are used for its answer. () where that is not in it."""
    asked = next((n for n in range(len(messages), 0, -1) if messages[n - 1].role == "user"), 0)
    if not asked:
        return ()
    answered = (n for n in range(asked, len(messages)) if messages[n].role == "assistant")
    return messages[: next(answered, len(messages))]


def answers_so_far(messages: tuple[Message, ...]) -> list[str]:
    """Return what was answered to what the user said last, one text for each time that tools were called."""
    return spoken(messages[len(opening(messages)) :])


def spoken(messages: Sequence[Message]) -> list[str]:
    """Return what the assistant said in the messages: some clients keep the thoughts before it."""
    said = (behind_thoughts(m.text).strip() for m in messages if m.role == "assistant")
    return [text for text in said if text]


def exchange_key(session_id: str, messages: tuple[Message, ...]) -> str:
    """Return a key that is equal for the same request sent again (a retry, a replayed transcript)."""
    (key,) = exchange_keys(session_id, messages, (len(messages),))
    return key


def exchange_keys(session_id: str, messages: Sequence[Message], ends: Iterable[int]) -> Iterator[str]:
    """Yield the keys of the conversation up to each of the ends, which rise, in one pass."""
    digest, at = blake2b(_framed(session_id), digest_size=16), 0
    for end in ends:
        digest.update(_framed(*(part for m in messages[at:end] for part in (m.role, m.identity))))
        at = end
        yield digest.copy().hexdigest()


def _digest(*parts: str) -> str:
    return blake2b(_framed(*parts), digest_size=16).hexdigest()


def _framed(*parts: str) -> bytes:
    """Return the parts, each behind its length: no two rows of parts give the same bytes."""
    encoded = (part.encode("utf-8", "surrogatepass") for part in parts)
    return b"".join(len(one).to_bytes(8, "little") + one for one in encoded)
