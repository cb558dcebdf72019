"""One hop further: a role in the question, its name in one memory, the answer under that name in another."""

import contextlib
from dataclasses import replace

import pytest

from proxy.domain import Hit
from proxy.pipeline.decision.expect import Expectation
from proxy.pipeline.recall.gate import gate_for
from proxy.pipeline.recall.hops import MOST_BRIDGES, MOST_LINKED, follow
from proxy.pipeline.recall.rank import Asked, rank
from tests.pipeline.conftest import NOW, memory

OPEN = gate_for(expected=Expectation.STRONG, dense=True, model_threshold=0.25, asked=None)
ASKED = gate_for(expected=Expectation.STRONG, dense=True, model_threshold=0.25, asked=0.3)
QUESTION = "When does my sister's flight land?"

SISTER = Hit(memory("sister", "User's sister is called Marta."), 0.4, 2.0)
LANDS = Hit(memory("lands", "Marta gets to Gatwick at 18:40."), 0.2, 0.0)
OWN = Hit(memory("own", "User's own flight is on Friday."), 0.3, 0.0)
REST = Hit(memory("rest", "Something else."), 0.0, 0.0)


class Shelf:
    """Gives what it holds, whatever is looked for, and keeps what that was."""

    def __init__(self, *hits: Hit) -> None:
        self.hits, self.asked = hits, []

    async def look(self, terms: tuple[str, ...]) -> tuple[Hit, ...]:
        self.asked.append(terms)
        return self.hits


def order(links, gate=OPEN):
    return [r.memory.id for r in rank(links.hits, Asked(), gate, limit=10, now=NOW, links=links.worth)]


async def test_what_is_said_of_the_sister_by_name_passes_what_is_merely_near():
    links = await follow(QUESTION, [SISTER, OWN, LANDS, REST], None)
    assert order(links) == ["sister", "lands", "own"]
    assert order(replace(links, worth={})) == ["sister", "own", "lands"]


async def test_a_question_without_a_role_looks_nothing_up():
    shelf = Shelf(LANDS)
    links = await follow("When do I land?", [SISTER, OWN], shelf.look)
    assert (links.hits, dict(links.worth), shelf.asked) == ((SISTER, OWN), {}, [])


async def test_the_name_is_looked_up_where_the_hits_are_not_all_there_is():
    shelf = Shelf(LANDS, OWN)
    links = await follow(QUESTION, [SISTER, OWN], shelf.look)
    assert shelf.asked == [("marta",)]
    assert [h.memory.id for h in links.hits] == ["sister", "own", "lands"]
    assert "lands" in links.worth


async def test_the_role_is_looked_up_where_no_hit_calls_it_by_a_name():
    shelf = Shelf(SISTER, LANDS)
    links = await follow(QUESTION, [OWN], shelf.look)
    assert "sister" in shelf.asked[0]
    assert "hermana" in shelf.asked[0]  # whatever language it was told in
    assert set(links.worth) == {"sister", "lands"}


async def test_what_is_looked_up_brings_no_bm25_of_another_question():
    links = await follow(QUESTION, [SISTER], Shelf(replace(LANDS, bm25=9.0)).look)
    assert links.hits[-1].bm25 == 0.0


async def test_a_name_that_the_question_says_itself_needs_no_hop():
    shelf = Shelf(LANDS)
    links = await follow("When does my sister Marta land?", [SISTER, OWN], shelf.look)
    assert dict(links.worth) == {}


async def test_a_name_that_nothing_else_holds_leads_nowhere():
    assert dict((await follow(QUESTION, [SISTER, OWN], None)).worth) == {}


async def test_another_persons_sister_is_not_the_users():
    other = Hit(memory("other", "Callum's sister is called Ottoline."), 0.5, 2.0)
    hers = Hit(memory("hers", "Ottoline lends a van."), 0.3, 0.0)
    links = await follow(QUESTION, [other, hers, SISTER, LANDS], None)
    assert set(links.worth) == {"sister", "lands"}


@pytest.mark.parametrize(
    ("question", "bridge", "answer"),
    [
        (
            "¿A qué hora llega mi hermana?",
            "La hermana de la usuaria se llama Begoña.",
            "Begoña llega a las 18:40.",
        ),
        ("Wann kommt meine Schwester?", "User's sister is called Marta.", "Marta gets to Gatwick at 18:40."),
        ("我妹妹几点到?", "用户的妹妹叫苏晴。", "苏晴六点四十到机场。"),
        ("When does my sister land?", "用户的妹妹叫苏晴。", "苏晴六点四十到机场。"),
        ("À quelle heure arrive ma sœur?", "La sœur de l'utilisatrice est Solenn.", "Solenn arrive à 18h40."),
    ],
)
async def test_links_hold_in_other_languages_and_between_them(question, bridge, answer):
    hits = [Hit(memory("bridge", bridge), 0.3, 0.0), Hit(memory("answer", answer), 0.1, 0.0)]
    assert set((await follow(question, hits, None)).worth) == {"bridge", "answer"}


async def test_a_link_never_opens_the_gate():
    far = [replace(hit, cosine=0.05, bm25=0.0) for hit in (SISTER, LANDS)]
    assert order(await follow(QUESTION, far, None)) == []


async def test_a_linked_memory_passes_with_the_one_that_led_to_it():
    low = replace(LANDS, cosine=0.01)
    assert order(await follow(QUESTION, [SISTER, low], None)) == ["sister", "lands"]


async def test_a_requests_own_threshold_holds_for_what_is_linked():
    assert "lands" not in order(await follow(QUESTION, [SISTER, LANDS], None), ASKED)


async def test_a_name_that_many_memories_hold_lifts_the_nearest_alone():
    many = [Hit(memory(f"m{n}", f"Marta likes tea number {n}."), n / 100, 0.0) for n in range(20)]
    links = await follow(QUESTION, [SISTER, *many], None)
    assert set(links.worth) == {"sister", *(f"m{n}" for n in range(20 - MOST_LINKED, 20))}


async def test_a_role_of_many_names_follows_the_nearest_alone():
    names = ["Ada", "Bea", "Cora", "Dina", "Edda"]
    friends = [Hit(memory(f"is-{n}", f"User's friend is {n}."), k / 10, 0.0) for k, n in enumerate(names)]
    facts = [Hit(memory(f"of-{n}", f"{n} sings."), 0.1, 0.0) for n in names]
    worth = (await follow("When is my friend's concert?", [*friends, *facts], None)).worth
    assert {i for i in worth if i.startswith("of-")} == {f"of-{n}" for n in names[-MOST_BRIDGES:]}


@pytest.mark.parametrize("text", ["Sister ", "妹妹叫", "sister , , ", "sister Marta and "])
async def test_memories_that_repeat_a_role_hold_nobody_up(text, benchmark_ms):
    hits = [Hit(memory(f"m{n}", (text * 2_000)[:4_000]), 0.3, 0.0) for n in range(50)]

    def followed() -> None:
        with contextlib.suppress(StopIteration):
            follow(QUESTION, hits, None).send(None)  # nothing in it waits

    assert benchmark_ms(followed) < 250  # 4 s where every place is looked at
