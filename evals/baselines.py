"""What simpler systems would find on the same data: dense only, BM25 only, and both fused by RRF-60.

Plain on purpose: the fact is embedded unchanged, the question as it was typed, nothing is skipped and
nothing is thresholded, so only recall is compared. Same embedder, same words, same scope as the proxy.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from evals.data import Fact, Persona, Question
from evals.score import Outcome
from proxy.models.load import load_embedder
from proxy.models.tokens import Tokens
from proxy.text.words import terms
from proxy.wire.authorship import fence

NAMES = ("dense", "BM25", "RRF-60")
K1, B, RRF_K = 1.2, 0.75, 60
LINE_OVERHEAD = "[semantic 2026-01-01 #1f] "
Vectors = Mapping[str, npt.NDArray[np.float32]]


def visible(persona: Persona, question: Question) -> list[Fact]:
    """Return the memories that a question may see: current ones of its project and of none."""
    superseded = persona.successors()
    projects = (None, question.project)
    facts = [(s, f) for s, f in persona.facts() if f.id not in superseded]
    return [f for s, f in facts if question.project is None or s.project in projects]


async def measure(
    personas: Sequence[Persona], models_dir: Path, model: str, budgets: Sequence[int]
) -> dict[str, list[Outcome]]:
    """Return the outcomes of all questions with an answer, by baseline and size of the block in tokens
    ("dense-600"); {} without an embedder."""
    embedder = load_embedder(models_dir, model=model).embedder
    if embedder is None:
        return {}
    facts = sorted({f.content for p in personas for f in p.current()})
    questions = sorted({q.query for p in personas for q in p.questions})
    made = [v for i in range(0, len(facts), 64) for v in await embedder.embed(facts[i : i + 64])]
    asked = [await embedder.embed_query(question) for question in questions]
    embedder.close()
    vectors, wanted = _by_text(facts, made), _by_text(questions, asked)
    tokens = Tokens()
    tokens.start().result(60)
    found: dict[str, list[Outcome]] = {f"{name}-{b}": [] for name in NAMES for b in budgets}
    for persona in personas:
        for question in (q for q in persona.questions if q.answers):
            corpus = visible(persona, question)
            dense = rank_dense(corpus, wanted[question.query], vectors)
            lexical = rank_bm25(corpus, question.query)
            for name, ranking in zip(NAMES, (dense, lexical, fuse([dense, lexical])), strict=True):
                for budget in budgets:
                    outcome = _outcome(persona, question, corpus, ranking, tokens, budget)
                    found[f"{name}-{budget}"].append(outcome)
    return found


def _by_text(texts: Sequence[str], made: Sequence[bytes]) -> Vectors:
    return {text: np.frombuffer(vector, np.float32) for text, vector in zip(texts, made, strict=True)}


def rank_dense(corpus: Sequence[Fact], wanted: npt.NDArray[np.float32], vectors: Vectors) -> list[str]:
    """Return the facts' ids by cosine."""
    return _ordered({f.id: float(vectors[f.content] @ wanted) for f in corpus})


def rank_bm25(corpus: Sequence[Fact], query: str) -> list[str]:
    """Return the ids of the facts that share a term with the query, by Okapi BM25."""
    bags = {f.id: Counter(terms(f.content)) for f in corpus}
    mean = sum(sum(bag.values()) for bag in bags.values()) / (len(bags) or 1)
    holders = Counter(t for bag in bags.values() for t in bag)

    def score(bag: Counter[str]) -> float:
        total = 0.0
        for term in set(terms(query)) & set(bag):
            idf = math.log(1 + (len(bags) - holders[term] + 0.5) / (holders[term] + 0.5))
            norm = K1 * (1 - B + B * sum(bag.values()) / mean)
            total += idf * bag[term] * (K1 + 1) / (bag[term] + norm)
        return total

    return _ordered({i: s for i, bag in bags.items() if (s := score(bag)) > 0})


def fuse(rankings: Sequence[Sequence[str]]) -> list[str]:
    """Return the ids by Σ 1/(60 + rank), after Cormack et al., SIGIR 2009."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for place, one in enumerate(ranking, 1):
            scores[one] = scores.get(one, 0.0) + 1 / (RRF_K + place)
    return _ordered(scores)


def _ordered(scores: Mapping[str, float]) -> list[str]:
    return sorted(scores, key=lambda i: (-scores[i], i))


def _outcome(
    persona: Persona,
    question: Question,
    corpus: Sequence[Fact],
    ranking: Sequence[str],
    tokens: Tokens,
    budget_tokens: int,
) -> Outcome:
    """Return the outcome of filling a block in this order; what does not fit is left out."""
    contents = {f.id: f.content for f in corpus}
    spent, held = tokens.count(fence(["-"]), "gpt-4o"), []  # as in the proxy, the fence is in the budget
    for one in ranking[:50]:
        cost = tokens.count(LINE_OVERHEAD + contents[one] + "\n", "gpt-4o")
        if spent + cost <= budget_tokens:
            spent += cost
            held.append(one)
    return Outcome(
        question=question.id,
        kind=question.kind,
        language=persona.language,
        skip=question.skip,
        answers=tuple(sorted(question.answers)),
        stale=tuple(sorted(question.stale)),
        status="injected",
        reason="",
        injected=tuple(held),
    )
