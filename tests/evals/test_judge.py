"""Stored memories against gold facts."""

import numpy as np
import numpy.typing as npt

from evals.data import persona
from evals.judge import Judge, Kept
from tests.evals.test_data import raw

VECTORS = {"The new one holds.": (1.0, 0.0), "New.": (0.9, 0.436), "Old.": (0.0, 1.0)}


async def embed(text: str) -> npt.NDArray[np.float32] | None:
    return np.array(VECTORS[text], np.float32) if text in VECTORS else None


def kept(*contents: str) -> list[Kept]:
    return [Kept(f"m{i}", content) for i, content in enumerate(contents)]


async def test_equal_texts_are_the_same_whatever_their_case_and_stop() -> None:
    assert await Judge(embed).same("User is vegan.", "user is VEGAN") == 1.0


async def test_near_texts_are_the_same() -> None:
    assert 0.8 <= await Judge(embed).same("The new one holds.", "New.") < 1.0


async def test_other_numbers_are_another_fact() -> None:
    async def alike(text: str) -> npt.NDArray[np.float32]:
        return np.array([1.0, 0.0], np.float32)

    assert await Judge(alike).same("The budget is 7,500.", "The budget is 750.") == 0.0
    assert await Judge(alike).same("The budget is 7,500.", "A budget of 7500.") > 0.8


async def test_texts_that_cannot_be_embedded_must_be_equal() -> None:
    assert await Judge(embed).same("预算是一万", "预算有一万") == 0.0


async def test_a_memory_counts_for_the_fact_that_it_is_most_like() -> None:
    verdict = await Judge(embed).verdict(persona(raw()), kept("The new one holds."))
    assert (verdict.found, verdict.missing, verdict.stale, verdict.extra) == ({"f2"}, (), (), 0)
    assert (verdict.recall, verdict.precision) == (1.0, 1.0)


async def test_a_superseded_fact_among_the_current_is_stale_and_not_precise() -> None:
    verdict = await Judge(embed).verdict(persona(raw()), kept("New.", "Old."))
    assert verdict.stale == ("f1",)
    assert verdict.precision == 0.5


async def test_a_fact_stored_twice_is_told() -> None:
    verdict = await Judge(embed).verdict(persona(raw()), kept("New.", "new"))
    assert verdict.doubled == ("f2",)


async def test_a_memory_that_states_no_fact_is_extra_but_may_quote_the_evidence_of_one() -> None:
    verdict = await Judge(embed).verdict(persona(raw()), kept("no, new", "Something else."))
    assert verdict.extra == 2
    assert verdict.useful == 1
    assert verdict.covered == {"f2"}
    assert verdict.recall == 0.0
