"""What every store does when it stores a memory, or gives one up."""

from collections.abc import Mapping

from proxy.domain.core import Memory, Scope
from proxy.domain.errors import WrongModel


def check(memory: Memory, vector: bytes | None, scope: Scope, dimension: int | None) -> None:
    """Raise ValueError for a memory that is not the user's, and WrongModel for a vector that is not of the
    store's dimension (None: no model was ever named)."""
    if (memory.scope.tenant, memory.scope.user) != (scope.tenant, scope.user):
        raise ValueError("a memory of another user")
    if vector is not None and dimension is not None and len(vector) != 4 * dimension:
        raise WrongModel(f"a vector of {len(vector) // 4} dimensions, the store holds {dimension}")


def heir_of(memory_id: str, successors: Mapping[str, str | None]) -> str | None:
    """Return who supersedes what the erased memory had superseded: the first of its line that is not erased.
    None: nobody does. `successors`: of what is erased."""
    heir = successors[memory_id]
    for _ in successors:  # not `while`: imported memories may supersede each other in a circle
        if heir is None or heir not in successors:
            return heir
        heir = successors[heir]
    return None
