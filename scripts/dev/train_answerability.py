#!/usr/bin/env python3
"""Train the network that reads from two vectors whether a memory answers a question: write
proxy/stores/models/answerability-minilm.npz from evals/answerability/*.jsonl.

For developers, some minutes: `.venv/bin/python scripts/dev/train_answerability.py`.

Every question is a choice between its user's nearest memories and none of them (a softmax over their scores
and 0). A question whose answers are taken away is one without an answer, too, in exactly the words of one
that has: so what is learned is the match, and not how people sound who ask in vain. One question in five has
something beside it that asks for nothing of memory ("Keep it short.", "Morning!"). Half of the questions
that have an answer are asked in the memory's own words, since a network that saw only roundabout ones would
close to plain ones.

One user in ten is left out of the training. Printed are, of these, how many questions with an answer pass the
bar, how many without; the bar is laid by them.
"""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from proxy.embedtext import embed_text
from proxy.pipeline.recall.answerable import NEAREST, told
from proxy.pipeline.recall.byname import as_asked_by, leaning, told_of, told_of_others
from proxy.pipeline.recall.retrieve import LIST_LENGTH
from proxy.pipeline.recall.rewrite import as_it_is
from proxy.ports import Embedder
from proxy.stores.models.catalog import MINILM
from proxy.stores.models.head import SCALE, WEIGHTS, of_memory
from proxy.stores.models.load import load_embedder
from proxy.stores.models.manner import MANNERS, Manner, manner_of

DATA = Path(__file__).resolve().parents[2] / "evals" / "answerability"
HIDDEN, NETWORKS = 128, 2  # hidden units of each of the networks whose mean is written
EPOCHS, BATCH, RATE, DECAY = 8, 32, 1e-3, 0.1
DROP_INPUT, DROP_HIDDEN = 0.1, 0.3
TAKEN_AWAY = 0.2  # the weight of a question whose answers were taken away
LEFT_OUT = 10  # one user in so many
# Of the questions with an answer of users left out: where the bars are laid.
KEPT: dict[Manner, float] = dict.fromkeys(MANNERS, 0.98)
FOLDS = 3
BESIDE_SHARE = 0.2
# What people say before or behind a question.
BESIDE = {
    "en": (
        (
            "Hi, quick one.", "Morning!", "I'm at the counter and they are asking.", "Sorry, one more thing:",
            "Filling in a form here.", "Before I forget:", "I'm writing to the office.", "Help me out.",
        ),
        (
            "Keep it short.", "Answer in one sentence.", "Please answer in French.",
            "Just the facts, please.", "Keep it under 100 words.", "I need it for a letter.", "Thanks!",
            "Put it in a table.", "No more than 250 characters, please.", "I have to leave in five minutes.",
        ),
    ),
    "zh": (
        ("你好。", "早上好!", "我正在填表。", "对了,", "帮我看一下。"),
        ("简短回答。", "一句话就行。", "谢谢!", "不超过一百字。", "请用英文回答。", "我马上要出门。"),
    ),
    "es": (
        ("Hola.", "Buenos días.", "Estoy rellenando un formulario.", "Una cosa más:"),
        (
            "Responde en una frase.", "En pocas palabras.", "¡Gracias!", "No más de cien palabras.",
            "Tengo prisa.",
        ),
    ),
    "fr": (
        ("Bonjour.", "Je remplis un formulaire.", "Encore une chose :", "Salut !"),
        ("Réponds en une phrase.", "En bref.", "Merci !", "Pas plus de cent mots.", "Je suis pressé."),
    ),
    "de": (
        ("Hallo.", "Guten Morgen!", "Ich fülle gerade ein Formular aus.", "Noch etwas:"),
        (
            "Antworte in einem Satz.", "Kurz, bitte.", "Danke!", "Höchstens hundert Wörter.",
            "Ich muss gleich los.",
        ),
    ),
}  # fmt: skip

Floats = NDArray[np.float32]
Parameters = dict[str, Floats]
Bars = dict[Manner, float]


@dataclass(frozen=True)
class Asked:
    """A question, its user's nearest memories and the answers among them."""

    user: int
    language: str
    plain: bool  # in the memory's own words
    text: str
    contents: list[str]
    question: Floats
    memories: Floats
    shares: Floats  # what they hold of the question's words
    answers: NDArray[np.bool_]
    weight: float = 1.0

    @property
    def manner(self) -> Manner:
        return manner_of(self.contents, glossed=self.language != "en")


def files(directory: Path) -> list[Path]:
    """Return the files in the order in which their users are numbered: what came later stands behind, so that
    the users left out of an earlier training stay out. `eighth/` is not among them: it is to measure by."""
    parts = ("*", "later/*", "third/*", "fourth/*", "fifth/*", "sixth/*", "seventh/*")
    return [file for part in parts for file in sorted(directory.glob(f"{part}.jsonl"))]


async def read(files: Sequence[Path]) -> list[Asked]:
    """Return all questions of all users. Raises ValueError for a line that is none."""
    with TemporaryDirectory() as directory:
        loaded = load_embedder(Path(directory), model=MINILM)
        if loaded.embedder is None:
            raise SystemExit(f"no embedding model: {'; '.join(loaded.notes)}")
        embedder, found = loaded.embedder, list[Asked]()
        lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
        chance = random.Random(0)
        for number, line in enumerate(lines):
            user = json.loads(line)
            memories = _vectors(await embedder.embed([embed_text(fact) for fact in user["facts"]]))
            for one in (*user["asked"], *user["missing"]):
                text = among_other_words(one["q"], user["lang"], chance)
                question = _vectors([await embedder.embed_query(text)])[0]
                nearest = await _nearest(text, question, user["facts"], memories, embedder)
                nearest += [at for at in one.get("a", ()) if at not in nearest]
                facts = [user["facts"][at] for at in nearest]
                beside = told(as_it_is(text).terms, [b""] * len(facts), facts)
                shares = np.array([(each.terms, each.weight) for each in beside], np.float32)
                answers, plain = np.isin(nearest, one.get("a", ())), bool(one.get("plain"))
                about = (number, user["lang"], plain, text, facts)
                found.append(Asked(*about, question, memories[nearest], shares, answers))
            print(f"\r{number + 1} of {len(lines)} users read", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        embedder.close()
    return found


async def _nearest(
    text: str, question: Floats, facts: Sequence[str], memories: Floats, embedder: Embedder
) -> list[int]:
    """Return the places of the memories that are read beside the question: see `byname` for those that are
    told of people by their names."""
    order = np.argsort(-(memories @ question), kind="stable").tolist()
    if names := told_of(text, [facts[at] for at in order[:LIST_LENGTH]]):
        own = leaning(question.tobytes(), await embedder.embed_query(as_asked_by(names, text)))
        order = np.argsort(-(memories @ np.frombuffer(own, np.float32)), kind="stable").tolist()
        apart = told_of_others(names, [facts[at] for at in order])
        order = [at for at, is_apart in zip(order, apart, strict=True) if not is_apart]
    return order[:NEAREST]


def among_other_words(question: str, language: str, chance: random.Random) -> str:
    """Return the question, or one time in five with something before or behind it."""
    if chance.random() >= BESIDE_SHARE:
        return question
    before, behind = BESIDE[language]
    return (
        f"{chance.choice(before)} {question}"
        if chance.random() < 0.4
        else f"{question} {chance.choice(behind)}"
    )


def _vectors(made: Sequence[bytes]) -> Floats:
    return np.stack([np.frombuffer(vector, np.float32) for vector in made])


def with_answers_taken_away(asked: Sequence[Asked]) -> Iterator[Asked]:
    for one in asked:
        yield one
        if one.answers.any() and not one.answers.all():
            left = ~one.answers
            yield replace(
                one,
                memories=one.memories[left],
                shares=one.shares[left],
                answers=one.answers[left],
                weight=TAKEN_AWAY,
            )


# ---------------------------------------------------------------- the network
def inputs(questions: Floats, memories: Floats, shares: Floats) -> Floats:
    return np.hstack([SCALE * questions, of_memory(questions, memories, shares)])


def fresh(width: int, rng: np.random.Generator) -> Parameters:
    return {
        "hidden": (rng.uniform(-1, 1, (width, HIDDEN)) / np.sqrt(width)).astype(np.float32),
        "bias": np.zeros(HIDDEN, np.float32),
        "output": (rng.uniform(-1, 1, HIDDEN) / np.sqrt(HIDDEN)).astype(np.float32),
        "cosine": np.array(15, np.float32),
        "constant": np.array(-6, np.float32),
    }


def log_odds(p: Parameters, one: Asked) -> float:
    read = inputs(np.broadcast_to(one.question, one.memories.shape), one.memories, one.shares)
    scores = np.maximum(read @ p["hidden"] + p["bias"], 0) @ p["output"]
    return float(np.logaddexp.reduce(scores + p["cosine"] * (one.memories @ one.question) + p["constant"]))


def gradients(p: Parameters, batch: Sequence[Asked], rng: np.random.Generator) -> Parameters:
    """Return the gradients of the batch's mean loss, with dropout."""
    sizes = [len(one.memories) for one in batch]
    questions = np.repeat(np.stack([one.question for one in batch]), sizes, axis=0)
    memories = np.concatenate([one.memories for one in batch])
    shares = np.concatenate([one.shares for one in batch])
    x = _dropped(inputs(questions, memories, shares), DROP_INPUT, rng)
    before = x @ p["hidden"] + p["bias"]
    open_ = _dropped((before > 0).astype(np.float32), DROP_HIDDEN, rng)
    hidden = before * open_
    cosines = np.einsum("ij,ij->i", questions, memories)
    scores = hidden @ p["output"] + p["cosine"] * cosines + p["constant"]

    ends = np.cumsum(sizes)
    pull = np.concatenate(
        [_pull(scores[end - size : end], one) for one, size, end in zip(batch, sizes, ends, strict=True)]
    )
    pull = (pull / len(batch)).astype(np.float32)
    into_hidden = pull[:, None] * p["output"] * open_
    return {
        "hidden": x.T @ into_hidden,
        "bias": into_hidden.sum(axis=0),
        "output": hidden.T @ pull,
        "cosine": np.asarray(pull @ cosines),
        "constant": np.asarray(pull.sum()),
    }


def _pull(scores: Floats, one: Asked) -> Floats:
    """Return the loss's gradient by the scores: the softmax with "none", less that among the answers."""
    top = max(0.0, float(scores.max()))
    odds = np.exp(scores - top)
    pull = odds / (odds.sum() + np.exp(-top))
    if one.answers.any():
        among = odds * one.answers
        pull = pull - among / among.sum()
    return one.weight * pull


def _dropped(values: Floats, share: float, rng: np.random.Generator) -> Floats:
    kept = rng.random(values.shape, dtype=np.float32) >= share
    return values * kept * np.float32(1 / (1 - share))


def train(asked: Sequence[Asked], seed: int) -> Parameters:
    """Return a network's parameters (AdamW; Loshchilov & Hutter 2019)."""
    rng = np.random.default_rng(seed)
    p = fresh(4 * len(asked[0].question) + asked[0].shares.shape[1], rng)
    mean = {name: np.zeros_like(value) for name, value in p.items()}
    square = {name: np.zeros_like(value) for name, value in p.items()}
    items = list(with_answers_taken_away(asked))
    starts = range(0, len(items) - BATCH + 1, BATCH)
    steps = EPOCHS * len(starts)
    orders = (rng.permutation(len(items)) for _ in range(EPOCHS))
    batches = ([items[at] for at in order[start : start + BATCH]] for order in orders for start in starts)
    for step, batch in enumerate(batches, 1):
        rate = RATE * min(1, step / 50) * max(0.02, 1 - step / steps)
        for name, gradient in gradients(p, batch, rng).items():
            mean[name] = 0.9 * mean[name] + 0.1 * gradient
            square[name] = 0.999 * square[name] + 0.001 * gradient**2
            move = (mean[name] / (1 - 0.9**step)) / (np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8)
            p[name] = np.asarray(p[name] * (1 - rate * DECAY) - rate * move, np.float32)
    return p


def mean_of(networks: Sequence[Parameters]) -> Parameters:
    """Return one network that scores as the mean of these."""
    share = np.float32(1 / len(networks))
    return {
        "hidden": np.hstack([p["hidden"] for p in networks]),
        "bias": np.concatenate([p["bias"] for p in networks]),
        "output": np.concatenate([p["output"] for p in networks]) * share,
        "cosine": np.asarray(sum(p["cosine"] for p in networks) * share),
        "constant": np.asarray(sum(p["constant"] for p in networks) * share),
    }


def network(asked: Sequence[Asked]) -> Parameters:
    return mean_of([train(asked, seed) for seed in range(NETWORKS)])


# ---------------------------------------------------------------- the bar
def in_turn(asked: Sequence[Asked]) -> list[tuple[Asked, float]]:
    """Return every question with what a network says that never saw its user."""
    found: list[tuple[Asked, float]] = []
    for fold in range(FOLDS):
        p = network([one for one in asked if one.user % FOLDS != fold])
        found += [(one, log_odds(p, one)) for one in asked if one.user % FOLDS == fold]
        print(f"fold {fold + 1} of {FOLDS}", file=sys.stderr)
    return found


def bars_of(scored: Sequence[tuple[Asked, float]], kept: Mapping[Manner, float] = KEPT) -> Bars:
    """Return the bar for each manner in which memories are told (see `manner`)."""

    def bar(manner: Manner) -> float:
        ours = sorted(score for one, score in scored if one.answers.any() and one.manner == manner)
        return ours[int((1 - kept[manner]) * len(ours))]

    return {manner: bar(manner) for manner in MANNERS}


def report(scored: Sequence[tuple[Asked, float]], bars: Bars) -> None:
    print(f"{'':10}{'with an answer':>24}{'plainly asked':>24}{'without':>20}")
    for group in ("all", *MANNERS, *sorted({one.language for one, _ in scored})):
        ours = [
            (one, score > bars[one.manner])
            for one, score in scored
            if group in ("all", one.manner, one.language)
        ]
        columns = (
            [passed for one, passed in ours if one.answers.any()],
            [passed for one, passed in ours if one.answers.any() and one.plain],
            [passed for one, passed in ours if not one.answers.any()],
        )
        cells = (f"{np.mean(column):.3f} of {len(column):,}" for column in columns)
        print(f"{group:10}" + "".join(f"{cell:>24}" for cell in cells))


def write(p: Parameters, bars: Bars, out: Path) -> None:
    held = {name: value for name, value in p.items() if name != "constant"}
    held |= {f"bar_{manner}": np.asarray(bar - p["constant"]) for manner, bar in bars.items()}
    np.savez_compressed(out, **{name: value.astype(np.float16) for name, value in held.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=WEIGHTS[MINILM])
    options = parser.parse_args()
    asked = asyncio.run(read(files(options.data)))
    p = network([one for one in asked if one.user % LEFT_OUT])
    scored = [(one, log_odds(p, one)) for one in asked if not one.user % LEFT_OUT]
    bars = bars_of(scored)
    report(scored, bars)
    write(p, bars, options.out)
    print(f"{options.out.name}: {options.out.stat().st_size:,} bytes, {len(asked):,} questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
