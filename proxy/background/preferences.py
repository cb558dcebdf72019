"""Which of several preferences holds: the narrower scope first, then who said it, then how sure it is."""

from collections.abc import Sequence

from proxy.background.belief import is_confirmed, is_inferred
from proxy.background.compare import Relation, relate
from proxy.domain import Memory, Scope

USED_ABOVE = 0.7


def resolve(memories: Sequence[Memory], scope: Scope, *, near: float) -> list[Memory]:
    """Return the memories, in their order, without the preferences that others overrule in this scope or
    that are too unsure to be used (confidence 0.7 or less). Other kinds of memories pass untouched.

    Of preferences about the same thing, a project's overrules the general one in that project, then what
    the user said outright overrules what was confirmed, and that what was inferred; then the surer, then
    the later one. `near`: the embedding model's duplicate threshold.
    """
    usable = [m for m in memories if m.type == "preference" and m.confidence > USED_ABOVE]
    standing: list[Memory] = []
    for one in sorted(usable, key=lambda m: _precedence(m, scope), reverse=True):
        if not any(_conflict(one, other, near) for other in standing if _meet(one, other)):
            standing.append(one)
    kept = {m.id for m in standing}
    return [m for m in memories if m.type != "preference" or m.id in kept]


def _precedence(memory: Memory, scope: Scope) -> tuple[bool, int, float, float, str]:
    own = scope.project is not None and memory.scope.project == scope.project
    said = 2 if not is_inferred(memory) else 1 if is_confirmed(memory) else 0
    return (own, said, memory.confidence, memory.updated_at, memory.id)


def _meet(one: Memory, other: Memory) -> bool:
    """True where both hold in one project: those of two projects do not touch each other."""
    projects = {one.scope.project, other.scope.project}
    return len(projects) == 1 or None in projects


def _conflict(one: Memory, other: Memory, near: float) -> bool:
    """True for two preferences about the same thing, whichever came first."""
    return any(
        relate(a.content, b.content, None, near=near) is not Relation.APART
        for a, b in ((one, other), (other, one))
    )
