"""Which preference holds: the project's before the general one, what was said before what was guessed."""

from dataclasses import replace
from typing import Any

from proxy.background.preferences import resolve
from proxy.domain import Evidence, Memory
from tests.background.support import ANA, NOON, memory

APOLLO = replace(ANA, project="apollo")
SAID = (Evidence("s-1", "ex_1", "that is how I like it"),)


def preference(content: str, **fields: Any) -> Memory:
    return memory(content, **{"type": "preference", "confidence": 0.9, "evidence": SAID, **fields})


def names(memories: list[Memory]) -> list[str]:
    return [m.content for m in memories]


def test_in_a_project_its_own_preference_holds_and_elsewhere_the_general_one() -> None:
    general = preference("User's editor is Zed", updated_at=NOON)
    own = preference("User's editor is Emacs", scope=APOLLO)
    assert resolve([general, own], APOLLO, near=0.8) == [own]
    assert resolve([general], ANA, near=0.8) == [general]


def test_what_was_said_outright_overrules_what_was_confirmed_and_that_what_was_guessed() -> None:
    said = preference("User's editor is Zed", confidence=0.75)
    twice = preference("User's editor is Emacs", evidence=(Evidence("s", "ex_1"), Evidence("s", "ex_2")))
    guessed = preference("User's editor is Nano", evidence=(), confidence=0.95)
    assert resolve([guessed, twice, said], ANA, near=0.8) == [said]
    assert resolve([guessed, twice], ANA, near=0.8) == [twice]


def test_an_unsure_preference_is_not_used() -> None:
    assert resolve([preference("User's editor is Zed", confidence=0.7)], ANA, near=0.8) == []
    sure = preference("User's editor is Zed", confidence=0.71)
    assert resolve([sure], ANA, near=0.8) == [sure]


def test_preferences_about_different_things_and_other_memories_keep_their_order() -> None:
    memories = [
        preference("User prefers aisle seats on planes"),
        memory("User's cat is called Miso", confidence=0.1),
        preference("User wants answers in French"),
    ]
    assert resolve(memories, ANA, near=0.8) == memories


def test_preferences_of_two_projects_do_not_touch_each_other() -> None:
    one = preference("User's editor is Zed", scope=APOLLO)
    other = preference("User's editor is Emacs", scope=replace(ANA, project="borealis"))
    assert len(resolve([one, other], ANA, near=0.8)) == 2
