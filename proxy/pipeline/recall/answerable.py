"""Tell memories that are near a question from memories that answer it.

Most questions that memory cannot answer have near memories all the same: of the same person, trip or
repair. What is read in them beyond a cosine (see ports.Answerability) closes the gate then: a model that is
shown what does not answer is led to guess. It is only asked about what it was trained on: a question as the
user typed it, that asks one thing and does not lean on what was said before.
"""

import math
from collections.abc import Collection, Sequence

from proxy.domain import Hit, Ranked
from proxy.gloss import gloss
from proxy.overlap import MEMORY_CHARS, held, is_content, searchable
from proxy.pipeline.recall.rank import coverage
from proxy.pipeline.recall.rewrite import Query
from proxy.ports import Answerability, Told

NEAREST = 12  # memories that are read; the answer is almost never behind them
_LANGUAGE_CHARS = 300  # of a memory tell its language; a long one would hold the loop for milliseconds


def is_readable(query: Query, typed: str) -> bool:
    """True if the query is what was typed: neither a topic from the history nor a made-up answer in it, and
    not several questions."""
    return bool(typed) and query.text == typed and not query.imagined and not query.parts


async def answer_odds(
    reader: Answerability,
    vector: bytes,
    query: Query,
    hits: Sequence[Hit],
    ranked: Sequence[Ranked],
    *,
    others: Collection[str] = (),
    glossed: bool,
) -> float | None:
    """Return the log-odds that one of the nearest memories answers the question (`glossed`: read word by
    word). Those told of `others` than the question is about (see byname) are left aside: -inf where nothing
    else would be shown. None where nothing can be said: of what would be shown something has no vector yet,
    or leads the order though it is none of the nearest."""
    said = [one for one in ranked if one.memory.id not in others]
    if ranked and not said:
        return -math.inf
    own = [hit for hit in hits if hit.memory.id not in others]
    near = sorted((hit for hit in own if hit.vector is not None), key=_nearness)[:NEAREST]
    read = {hit.memory.id: (hit.vector, hit.memory.content) for hit in near}
    blank = {hit.memory.id for hit in own if hit.cosine is None}
    if not said or said[0].memory.id not in read or any(one.memory.id in blank for one in said):
        return None
    # Of one found twice the first counts.
    order = [*(one.memory.id for one in said if one.memory.id in read), *read]
    vectors, contents = zip(*(read[id_] for id_ in dict.fromkeys(order)), strict=True)
    leader = said[0].memory.content[:_LANGUAGE_CHARS]
    glossed = glossed or gloss(leader).text != leader
    memories = told(query.terms, vectors, contents)
    return await reader.log_odds(query.text, vector, memories, glossed=glossed)


def _nearness(hit: Hit) -> float:
    return -(hit.cosine or 0.0)


def told(terms: Sequence[str], vectors: Sequence[bytes], contents: Sequence[str]) -> list[Told]:
    """Return the memories as they stand beside a question of these terms."""
    wanted = [term for term in terms if is_content(term)]
    found = [held(wanted, searchable(content, MEMORY_CHARS)) for content in contents]
    return [
        Told(content, vector, len(terms_in) / max(1, len(wanted)), weight)
        for content, vector, terms_in, weight in zip(
            contents, vectors, found, coverage(wanted, found), strict=True
        )
    ]
