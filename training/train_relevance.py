r"""Train the relevance head: message and memory read together, does the memory help?

    python -m training.train_relevance --encoder encoder.npz --words e5-small-q4.bin \
        --tokenizer tokenizer.json --seconds 1500 --out heads

A low-rank head (see model.py) on the relevance and the retrieval users. Each message comes with memories that
help and with the nearest ones that do not; a message that nothing helps comes with the nearest. Loss: is it
right of each pair, and do those that help come first. The card has, for the nearest six of every held-out
message, how many messages get something where nothing helps while 2, 4 or 6 % of the others get nothing.
"""

import hashlib
import json
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import model as m
from training.train_message import states

MESSAGES, PAIRS, NEAREST = 12, 4, 6


@dataclass(frozen=True, slots=True)
class Asked:
    """A message with the memories of its user, nearest first, and the places of those that help."""

    lang: str
    text: str
    facts: list[str]
    order: list[int]
    helps: frozenset[int]

    def sampled(self, rng: random.Random) -> list[tuple[str, float]]:
        """Return up to four memories: two that help, the nearest other, and others of the nearest."""
        others = [place for place in self.order if place not in self.helps]
        some = rng.sample(sorted(self.helps), min(2, len(self.helps))) + others[:1]
        some += rng.sample(others[1:6], min(PAIRS - len(some), len(others[1:6])))
        return [(self.facts[place], float(place in self.helps)) for place in some]


def asked(data: Path, task: str, split: str, encoder: m.Encoder, texts: m.Texts, most: int) -> list[Asked]:
    """Return the messages of at most `most` users."""
    users = list(m.lines(data, task, split))
    users = random.Random(0).sample(users, min(most, len(users)))
    found: list[Asked] = []
    for lang, user in users:
        facts = user["facts"]
        questions = [(one["q"], frozenset(one["a"])) for one in user["asked"]]
        questions += [(one["q"], frozenset()) for one in user["missing"]]
        said = [m.MEMORY + fact for fact in facts] + [m.QUESTION + text for text, _ in questions]
        vectors = states(encoder, texts, said)[1]
        nearness = vectors[len(facts) :] @ vectors[: len(facts)].T
        for (text, helps), near in zip(questions, nearness, strict=True):
            found.append(Asked(lang, text, facts, near.argsort(descending=True).tolist(), helps))
    return found


def logits(head: m.Head, rows: list[tuple[list[int], list[int]]]) -> Tensor:
    order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]))
    parts = []
    for at in range(0, len(order), 64):
        with torch.autocast("cpu", torch.bfloat16):
            (out,) = head(*m.batched([rows[i] for i in order[at : at + 64]]))
        parts.append((out[:, 1] - out[:, 0]).float())
    return torch.cat(parts)[torch.argsort(torch.tensor(order))]


def report(head: m.Head, messages: list[Asked], texts: m.Texts) -> dict:
    head.eval()
    rows = [texts.pair(one.text, one.facts[place]) for one in messages for place in one.order[:NEAREST]]
    owners = np.array([i for i, one in enumerate(messages) for _ in one.order[:NEAREST]])
    with torch.no_grad():
        found = logits(head, rows).numpy()
    head.train()
    best = np.array([found[owners == i].max() for i in range(len(messages))])
    answered = np.array([bool(one.helps) for one in messages])
    ranked = np.sort(best[answered])
    shown = {}
    for silent in (0.02, 0.04, 0.06):
        least = ranked[int(silent * len(ranked))]
        shown[f"{silent:.2f}"] = {
            "logit": round(float(least), 2),
            "shown": round(float((best[~answered] >= least).mean()), 3),
        }
    return {"messages": len(messages), "silent to shown where nothing helps": shown}


def fit(
    head: m.Head, old: list[Asked], new: list[Asked], texts: m.Texts, seconds: float, rate: float
) -> None:
    rng = random.Random(1)
    parameters = [p for p in head.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.02)
    began, steps = time.monotonic(), 0
    while (spent := time.monotonic() - began) < seconds:
        for group in optimiser.param_groups:
            share = max(0.03, 0.5 + 0.5 * math.cos(math.pi * spent / seconds))
            group["lr"] = rate * min(1, (steps + 1) / 30) * share
        rows, right, owners = [], [], []
        for i, one in enumerate(rng.sample(new, 7) + rng.sample(old, MESSAGES - 7)):
            for fact, helps in one.sampled(rng):
                rows.append(texts.pair(one.text, fact))
                right.append(helps)
                owners.append(i)
        tokens, mask, segments = m.batched(rows)
        first = (segments == 0) & (torch.arange(tokens.shape[1]) == 0)
        mask = mask & ((torch.rand(tokens.shape) >= 0.05) | first)
        with torch.autocast("cpu", torch.bfloat16):
            (out,) = head(tokens, mask, segments)
        odds, wanted, owner = (out[:, 1] - out[:, 0]).float(), torch.tensor(right), torch.tensor(owners)
        loss = F.binary_cross_entropy_with_logits(odds, wanted * 0.96 + 0.02)
        firsts = [
            torch.logsumexp(odds[owner == i], 0) - torch.logsumexp(odds[(owner == i) & (wanted > 0)], 0)
            for i in range(MESSAGES)
            if ((owner == i) & (wanted > 0)).any()
        ]
        if firsts:
            loss = loss + 0.3 * torch.stack(firsts).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        steps += 1
        if steps % 50 == 0:
            print(steps, "steps,", round(spent), "s, loss", round(loss.item(), 3), flush=True)


def main() -> None:
    parser = m.options(__doc__)
    parser.add_argument("--encoder", type=Path, nargs="+", required=True)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--users", type=int, default=900, help="of the retrieval users")
    parser.add_argument("--seconds", type=float, default=1500)
    parser.add_argument("--rate", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    texts = m.texts_of(args.tokenizer)
    encoder = m.load(m.published_words(args.words), args.encoder, args.layers)

    def read(task: str, split: str, most: int) -> list[Asked]:
        return asked(args.data, task, split, encoder, texts, most)

    old, new = read("retrieval", "train", args.users), read("relevance", "train", 10_000)
    held = {
        "dev": read("relevance", "dev", 10_000),
        "test": read("relevance", "test", 10_000),
        "retrieval test": read("retrieval", "test", 40),
    }
    head = m.Head(encoder, [2], args.rank, args.layers)
    fit(head, old, new, texts, args.seconds, args.rate)
    args.out.mkdir(parents=True, exist_ok=True)
    target = args.out / "relevance.npz"
    np.savez_compressed(target, **m.packed(head.trained()))
    card = {
        "head": "relevance",
        "layers": args.layers,
        "rank": args.rank,
        "classes": [["no", "yes"]],
        "trained_on": {"retrieval": len(old), "relevance": len(new)},
        "scores": {name: report(head, messages, texts) for name, messages in held.items()},
        "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
    }
    (args.out / "relevance.json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(card["scores"], indent=1))


if __name__ == "__main__":
    main()
