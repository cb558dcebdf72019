"""One memory added by hand, through the same gate as the extracted ones."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

from proxy.background.admit import Gate, admit
from proxy.background.filters import reject
from proxy.domain import Candidate, Confirm, Create, Memory, MemoryFilter, Scope, Supersede
from proxy.errors import Conflict, InvalidRequest
from proxy.ports import Clock

_REFUSALS = {
    "empty": "it says nothing",
    "too_long": "it is too long for one memory; split it into single facts",
    "garbled": "it holds broken characters",
    "planted": "it reads like an instruction planted for the assistant",
    "echo": "it repeats a block of injected memories",
}
_SENSITIVE = "it holds what looks like a secret or an identifying number"
_ATTEMPTS = 3

Remember = Callable[[Scope, Candidate], Awaitable[tuple[Memory, str]]]


def remember_with(gate: Gate, clock: Clock) -> Remember:
    """Return the function that adds a memory: (scope, candidate) -> (memory, what happened)."""

    async def remember(scope: Scope, candidate: Candidate) -> tuple[Memory, str]:
        if reason := reject(candidate):
            why = _REFUSALS.get(reason, _SENSITIVE)
            raise InvalidRequest(f"Invalid 'content': {why}.", param="content", code=f"rejected_{reason}")
        for attempt in range(_ATTEMPTS):
            try:
                return await _store(gate, scope, candidate, clock())
            except Conflict:  # the user forgot something at this very moment; the new memory is newer
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    return remember


async def _store(gate: Gate, scope: Scope, candidate: Candidate, now: float) -> tuple[Memory, str]:
    began = await gate.memories.stamp(scope)
    decision = await admit(gate, scope, [candidate], began=began, now=now, seed=uuid4().hex)
    match decision.changes:
        case (Create(memory=memory),):
            return memory, "created"
        case (Supersede(memory=memory),):
            return memory, "superseded"
        case (Confirm(id=memory_id),):
            where = MemoryFilter(tenant=scope.tenant, user=scope.user, include_inactive=True, now=now)
            existing = await gate.memories.get(where, memory_id)
            if existing is not None:
                return existing, "confirmed"
    raise Conflict("the memory it confirms is gone")
