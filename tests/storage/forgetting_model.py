"""What a store should still know, by words: every stored text contains one of its own."""

from dataclasses import dataclass, field

from proxy.domain.core import MemoryFilter, Scope

CHILDREN = {"semantic": ("semantic", "preference")}


@dataclass
class Fact:
    """A memory, or a candidate that is held."""

    id: str
    scope: Scope
    type: str
    content: str
    words: set[str]  # all that must be gone with it
    said: set[str] = field(default_factory=set)  # the exchanges that it came from
    current: bool = True
    next: str | None = None  # the fact that superseded it


@dataclass
class Said:
    """An exchange."""

    scope: Scope
    session: str
    words: set[str]
    read: bool = False
    recalled: set[str] = field(default_factory=set)  # the facts that its answer was given with


@dataclass
class StoredText:
    """A stored response, or an item of a conversation."""

    scope: Scope
    session: str
    words: set[str]
    previous: str | None = None  # the response it continues, or belongs to


@dataclass
class Model:
    """All that the stores hold, by id."""

    facts: dict[str, Fact] = field(default_factory=dict)
    held: dict[str, Fact] = field(default_factory=dict)
    said: dict[str, Said] = field(default_factory=dict)
    stored: dict[str, StoredText] = field(default_factory=dict)

    def current(self) -> list[str]:
        return [f.id for f in self.facts.values() if f.current]

    def take_out(self, where: MemoryFilter, id_: str | None) -> set[str]:
        """Take out what a forget covers; return all words that must be gone with it."""
        facts = self._facts(where, id_)
        said = set().union(*(self.facts[i].said for i in facts)) if facts else set()
        ours = {i for i, s in self.said.items() if within(s.scope, where)}
        if id_ is None:
            said |= ours if where.type is None else {i for i in ours if not self.said[i].read}
        said = {i for i in said if i in self.said and self.said[i].scope.user == where.user}
        shown = {i for i, s in self.said.items() if s.recalled & facts and s.scope.user == where.user}
        held = {
            i for i, h in self.held.items() if (matches(h, where) and id_ is None) or (h.said & said)
        }  # fmt: skip
        sessions = {(self.said[i].scope.project, self.said[i].session) for i in said | shown}
        stored = {
            i
            for i, k in self.stored.items()
            if (k.scope.user == where.user and (k.scope.project, k.session) in sessions)
            or (id_ is None and where.type is None and within(k.scope, where))
        }
        words = set().union(
            *(self.facts.pop(i).words for i in facts),
            *(self.said.pop(i).words for i in said),
            *(self.held.pop(i).words for i in held),
            *(self.stored.pop(i).words for i in stored),
        )
        return words | self.take_out_continuations()

    def take_out_continuations(self) -> set[str]:
        """Take out what continues a response that is gone; return its words."""
        words = set()
        while lost := {i for i, k in self.stored.items() if k.previous and k.previous not in self.stored}:
            words |= set().union(*(self.stored.pop(i).words for i in lost))
        return words

    def _facts(self, where: MemoryFilter, id_: str | None) -> set[str]:
        facts = {i for i, f in self.facts.items() if matches(f, where) and id_ in (None, i)}
        while older := {i for i, f in self.facts.items() if f.next in facts} - facts:
            facts |= older
        return facts


def within(scope: Scope, where: MemoryFilter) -> bool:
    return scope.user == where.user and where.project in (None, scope.project)


def matches(fact: Fact, where: MemoryFilter) -> bool:
    wanted = CHILDREN.get(where.type or "", (where.type,))
    return within(fact.scope, where) and (where.type is None or fact.type in wanted)
