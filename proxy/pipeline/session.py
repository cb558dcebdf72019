"""Which session a request belongs to, without asking a store.

An id that the client names, else a fingerprint of the conversation: its system text and first user
message, which an unmodified chat client repeats in every request of the conversation.
"""

from hashlib import blake2b

from proxy.domain import Message, Scope


def fingerprint(scope: Scope, conversation: str) -> str:
    """Return the session id of an unnamed conversation: equal for equal scope and beginning."""
    return "sess_" + _digest(scope.tenant, scope.user, scope.project or "", conversation)


def exchange_key(session_id: str, messages: tuple[Message, ...]) -> str:
    """Return a key that is equal for the same request sent again (a retry, a replayed transcript)."""
    return _digest(session_id, *(part for m in messages for part in (m.role, m.text)))


def _digest(*parts: str) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()
