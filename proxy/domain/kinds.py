"""Memory types: a closed list, as rows of a table. Imported from `proxy.domain.core`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One memory type of the closed list."""

    name: str
    parent: str | None  # a filter on the parent matches this kind too
    pack_order: int  # when the token budget is short, lower goes in first


KINDS = {
    kind.name: kind
    for kind in (
        Kind("preference", parent="semantic", pack_order=1),
        Kind("episodic", parent=None, pack_order=2),
        Kind("semantic", parent=None, pack_order=3),
        Kind("procedural", parent=None, pack_order=4),
    )
}


def with_children(types: tuple[str, ...]) -> frozenset[str]:
    """Return the types and every kind whose parent is among them."""
    return frozenset(k.name for k in KINDS.values() if k.name in types or k.parent in types)
