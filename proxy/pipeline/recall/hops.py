"""Two-hop recall: find what memory holds about people whom the question names by their role alone.

"When does my sister's flight land?" comes close to "User's sister is Marta" and to every flight, but not to
"Marta lands at Gatwick at 18:40". A memory that gives the role a name is a bridge: memories that mention
the name are worth more for the question, and so is the bridge, without which nobody knows who Marta is.

A bridge needs a role (see roles.py) in the question, and in a memory a name for it (see called.py). Taking
any name from the best hits was tried: it links everything to everything and costs single facts a place. No
graph is kept. The links are read from the hits, and from at most two more searches of the same scope where
the user has more memories than the lists hold; questions without a role cost nothing.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from proxy.domain import Hit
from proxy.overlap import MEMORY_CHARS, searchable
from proxy.pipeline.recall.called import Name, names_of
from proxy.pipeline.roles import Role, roles_in
from proxy.terms import fold, terms

# Added to a score in [0, 1]: what is linked passes what is merely similar, and not a clear best match.
LINKED = 0.25
BRIDGE = 0.15
MOST_BRIDGES = 3  # a role that many have names nobody
MOST_LINKED = 5  # of each name
LOOKED_CHARS = 1_000  # of a memory, for the names in it
MOST_PLACES = 4  # of roles in one memory: one that repeats a role is no list of names, and costs time

Look = Callable[[tuple[str, ...]], Awaitable[Sequence[Hit]]]
"""Returns a few more memories of the scope that hold any of the terms."""


@dataclass(frozen=True, slots=True)
class Links:
    """`hits`: those given and those that a link led to. `worth`: what to add to a score, by memory id."""

    hits: tuple[Hit, ...]
    worth: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Bridge:
    """A memory that calls a role by a name; `pattern` finds the name in searchable text."""

    memory_id: str
    name: Name
    pattern: re.Pattern[str]


async def follow(question: str, hits: Sequence[Hit], look: Look | None) -> Links:
    """Return the hits with those that are one hop away from the question.

    `look`: None where the hits are all memories that there are. Raises StoreUnavailable.
    """
    roles = roles_in(question)
    if not roles or not hits:
        return Links(tuple(hits))
    said = searchable(question)
    bridges = _bridges(said, hits, roles)
    if not bridges and look is not None:
        hits = _joined(hits, await look(_distinct(term for role in roles for term in role.terms)))
        bridges = _bridges(said, hits, roles)
    if bridges and look is not None:
        forms = (form for bridge in bridges for form in bridge.name.forms)
        hits = _joined(hits, await look(_distinct(term for form in forms for term in terms(form))))
    return Links(tuple(hits), _worth(hits, bridges))


def _joined(hits: Sequence[Hit], more: Sequence[Hit]) -> list[Hit]:
    """Return the hits and the new ones of `more`, whose BM25 is that of another question."""
    known = {hit.memory.id for hit in hits}
    return [*hits, *(replace(hit, bm25=0.0) for hit in more if hit.memory.id not in known)]


def _distinct(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found))


# ---------------------------------------------------------------- bridges
def _bridges(said: str, hits: Sequence[Hit], roles: Sequence[Role]) -> list[_Bridge]:
    """Return the memories that name a role, the closest to the question first; if some of them speak of the
    user, only those ("Callum's daughter" is not the user's)."""
    of_user: list[_Bridge] = []
    of_others: list[_Bridge] = []
    for hit in sorted(hits, key=_closeness):
        content = hit.memory.content[:LOOKED_CHARS]
        folded = fold(content, LOOKED_CHARS)
        called = _distinct_names(content, folded, roles)
        bridges = [_Bridge(hit.memory.id, name, name.pattern) for name in called]
        new = [bridge for bridge in bridges if not bridge.pattern.search(said)]
        (of_user if new and _USER.search(folded) else of_others).extend(new)
        if len(of_user) >= MOST_BRIDGES:
            break
    return (of_user or of_others)[:MOST_BRIDGES]


_USER = re.compile(
    r"\b(?:users?|usuari[oa]|nutzer(?:s|in)?|utilisat(?:eur|rice)|my|i|mi|mein\w*|mon|ma)\b|用户|我"
)


def _distinct_names(content: str, folded: str, roles: Sequence[Role]) -> Iterable[Name]:
    # Folding keeps the places of nearly all letters, and a role found a letter early is the same role.
    places = dict.fromkeys(place for role in roles for place in role.places(folded))
    looked = islice(places, MOST_PLACES)
    return dict.fromkeys(name for start, end in looked for name in names_of(content, start, end))


def _closeness(hit: Hit) -> tuple[float, float]:
    return -(hit.cosine or 0.0), -hit.bm25


def _worth(hits: Sequence[Hit], bridges: Sequence[_Bridge]) -> dict[str, float]:
    worth: dict[str, float] = {}
    texts = [searchable(hit.memory.content, MEMORY_CHARS) for hit in hits] if bridges else []
    for bridge in bridges:
        linked = [
            hit
            for hit, text in zip(hits, texts, strict=True)
            if hit.memory.id != bridge.memory_id and bridge.pattern.search(text)
        ]
        for hit in sorted(linked, key=_closeness)[:MOST_LINKED]:
            worth.setdefault(hit.memory.id, LINKED)
        if linked:
            worth.setdefault(bridge.memory_id, BRIDGE)
    return worth
