r"""Train the heads that read the encoder's frozen states: `message` (what a message needs and asks) and
`profile` (which memories hold in every conversation).

    python -m training.train_message --encoder encoder.npz --words e5-small-q4.bin \
        --tokenizer tokenizer.json --out heads

Both are networks of one hidden layer. `message` reads the mean and the largest value of each channel over the
tokens, `profile` the vector that a memory is searched by. Two minutes on two cores, most of it the encoder.
The operating points are chosen on dev: `memory` opens for 97 % of the messages that need it; each of the
others is where precision and recall are equal.
"""

import argparse
import hashlib
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training import model as m
from training.train_head import ASKS, TRIAGE, message

HIDDEN, STEPS, BATCH, RATE = 128, 2500, 256, 1e-3
OPEN = 0.97  # of the dev messages that need memory
UNLABELLED = -1
FORMED = 0.25  # the share of messages that are trained once more with an instruction behind them
RELEVANCE = 4  # of these messages one is read: all need memory, and would outweigh the other classes


class Message(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2 * m.WIDTH, HIDDEN)
        self.needs = nn.Linear(HIDDEN, len(TRIAGE))
        self.asks = nn.Linear(HIDDEN, len(ASKS) - 1)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.dropout(F.gelu(self.a(self.dropout(x))))
        return self.needs(hidden), self.asks(hidden)


class Profile(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(m.WIDTH, HIDDEN)
        self.out = nn.Linear(HIDDEN, 2)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dropout(F.gelu(self.a(self.dropout(8 * x)))))


def messages(data: Path, split: str) -> Iterator[tuple[str, str, int, list[float]]]:
    """Yield (language, text, class of need, asks) of every labelled message of a split, each text once."""
    asked: dict[str, tuple[str, int, list[float]]] = {}

    def add(lang: str, text: str, need: int, ask: str) -> None:
        _, known, asks = asked.setdefault(text, (lang, need, [0.0] * (len(ASKS) - 1)))
        if ask in ASKS[1:]:
            asks[ASKS.index(ask) - 1] = 1.0
        asked[text] = (lang, max(known, need), asks)

    for lang, line in m.lines(data, "triage", split):
        add(lang, message(line), TRIAGE.index(line["label"]), "none")
    for lang, line in m.lines(data, "ask", split):
        add(lang, line["text"], UNLABELLED, line["label"])
    for lang, line in m.lines(data, "statement", split):
        add(lang, line["message"], UNLABELLED, line["sense"])
    for lang, line in m.lines(data, "relevance", split):
        for one in line["asked"][::RELEVANCE]:
            add(lang, one["q"], UNLABELLED if one.get("kind") == "rule" else 0, "none")
    rng = random.Random(0)
    forms = _forms(data) if split == "train" else {}
    for text, (lang, need, asks) in asked.items():
        yield lang, text, need, asks
        if lang in forms and rng.random() < FORMED:
            yield lang, f"{text.rstrip()} {rng.choice(forms[lang])}", need, asks


def _forms(data: Path) -> dict[str, list[str]]:
    """Return by language short instructions on the form of an answer ("Keep it short."). After a message they
    change neither what it needs nor what it asks of memory."""
    found: dict[str, list[str]] = defaultdict(list)
    for lang, line in m.lines(data, "form", "train"):
        found[lang].append(line["text"])
    return found


def memories(data: Path, split: str) -> Iterator[tuple[str, str, list[float]]]:
    """Yield (language, memory, [is a rule, is a trait]). Test users say only that it is one of both."""
    for lang, line in m.lines(data, "relevance", split):
        rules, traits = (set(line.get(name, line.get("standing", ()))) for name in ("rules", "traits"))
        for i, fact in enumerate(line["facts"]):
            yield lang, fact, [float(i in rules), float(i in traits)]


def states(encoder: m.Encoder, texts: m.Texts, said: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return the features of the message head, and the vectors, of texts with their prompt."""
    order = sorted(range(len(said)), key=lambda i: len(said[i]))
    features, vectors = torch.zeros(len(said), 2 * m.WIDTH), torch.zeros(len(said), m.WIDTH)
    for at in range(0, len(order), 128):
        some = order[at : at + 128]
        tokens, mask, _ = m.batched([texts.pair(said[i]) for i in some])
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            hidden = encoder(tokens, mask).float()
        weight = mask[..., None].float()
        mean = (hidden * weight).sum(1) / weight.sum(1)
        largest = hidden.masked_fill(~mask[..., None], -math.inf).max(1).values
        features[some], vectors[some] = torch.cat([mean, largest], 1), F.normalize(mean, dim=-1)
    return features, vectors


def fit(network: nn.Module, count: int, loss: Callable[[Tensor], Tensor]) -> None:
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.05)
    network.train()
    for k in range(STEPS):
        for group in optimiser.param_groups:
            group["lr"] = RATE * max(0.02, 0.5 + 0.5 * math.cos(math.pi * k / STEPS))
        found = loss(torch.randint(0, count, (BATCH,)))
        optimiser.zero_grad()
        found.backward()
        optimiser.step()
    network.eval()


def balance(scores: np.ndarray, right: np.ndarray) -> float:
    """Return the offset that makes as many scores positive as are right: precision equals recall."""
    return -float(np.sort(scores)[::-1][max(0, int(right.sum()) - 1)]) + 1e-4


def precision_recall(scores: np.ndarray, right: np.ndarray) -> dict:
    said = scores >= 0
    return {
        "precision": round(float(right[said].mean()), 3) if said.any() else None,
        "recall": round(float(said[right].mean()), 3) if right.any() else None,
        "n": int(right.sum()),
        "false": round(float(said[~right].mean()), 4),
    }


def log_odds(needs: Tensor) -> np.ndarray:
    rest = torch.logsumexp(needs[:, 1:], 1)
    return (needs[:, 0] - rest).numpy()


def report_message(found: tuple, network: Message, moved: Callable, offsets: dict) -> dict:
    langs, features, need, asks = found
    with torch.no_grad():
        needs, asked = network(moved(features))
    labelled = need != UNLABELLED
    opened = log_odds(needs) + offsets["memory"] >= 0
    by_lang: dict[str, list[bool]] = defaultdict(list)
    for i in np.flatnonzero(labelled):
        by_lang[langs[i]].append(bool(needs[i].argmax() == need[i]))
    return {
        "needs": {
            "accuracy": round(float(np.mean([x for xs in by_lang.values() for x in xs])), 3),
            "by_language": {k: (round(float(np.mean(v)), 3), len(v)) for k, v in sorted(by_lang.items())},
            "opened": {
                name: round(float(opened[need == i].mean()), 3)
                for i, name in enumerate(TRIAGE)
                if (need == i).any()
            },
        },
        "asks": {
            name: precision_recall(asked[:, i].numpy() + offsets[name], asks[:, i] > 0)
            for i, name in enumerate(ASKS[1:])
        },
    }


def train_message(args: argparse.Namespace, encoder: m.Encoder, texts: m.Texts) -> None:
    def read(split: str) -> tuple:
        langs, said, need, asks = zip(*messages(args.data, split), strict=True)
        return (
            langs,
            states(encoder, texts, [m.QUESTION + text for text in said])[0],
            np.array(need),
            np.array(asks),
        )

    sets = {split: read(split) for split in ("train", "dev", "test")}
    _, features, need, asks = sets["train"]
    mu, sd = features.mean(0), features.std(0) + 1e-4
    moved = lambda x: (x - mu) / sd  # noqa: E731
    network, classes, wanted = Message(), torch.tensor(need), torch.tensor(asks).float()
    counts = torch.bincount(classes[classes >= 0], minlength=len(TRIAGE)).float()
    weights = (counts.sum() / len(TRIAGE) / counts) ** 0.7

    def loss(rows: Tensor) -> Tensor:
        needs, asked = network(moved(features[rows]) + 0.15 * torch.randn(len(rows), 2 * m.WIDTH))
        labelled = classes[rows] >= 0
        found = F.cross_entropy(needs[labelled], classes[rows][labelled], weights, label_smoothing=0.05)
        return found + F.binary_cross_entropy_with_logits(
            asked, wanted[rows], pos_weight=torch.full((4,), 2.0)
        )

    fit(network, len(features), loss)
    with torch.no_grad():
        needs, asked = network(moved(sets["dev"][1]))
    positive = np.sort(log_odds(needs)[sets["dev"][2] == 0])
    offsets = {"memory": -float(positive[int((1 - OPEN) * len(positive))])}
    for i, name in enumerate(ASKS[1:]):
        offsets[name] = balance(asked[:, i].numpy(), sets["dev"][3][:, i])
    scores = {split: report_message(sets[split], network, moved, offsets) for split in ("dev", "test")}
    save(args.out, "message", {**network.state_dict(), "mu": mu, "sd": sd}, offsets, scores)


def train_profile(args: argparse.Namespace, encoder: m.Encoder, texts: m.Texts) -> None:
    def read(split: str) -> tuple:
        _, said, labels = zip(*memories(args.data, split), strict=True)
        return states(encoder, texts, [m.MEMORY + text for text in said])[1], torch.tensor(labels)

    sets = {split: read(split) for split in ("train", "dev", "test")}
    vectors, labels = sets["train"]
    network = Profile()

    def loss(rows: Tensor) -> Tensor:
        found = network(vectors[rows] + 0.01 * torch.randn(len(rows), m.WIDTH))
        return F.binary_cross_entropy_with_logits(found, labels[rows], pos_weight=torch.full((2,), 3.0))

    fit(network, len(vectors), loss)
    with torch.no_grad():
        found = {split: network(x).numpy() for split, (x, _) in sets.items()}
    right = {split: y.numpy() > 0 for split, (_, y) in sets.items()}
    names = ("rule", "trait")
    offsets = {name: balance(found["dev"][:, i], right["dev"][:, i]) for i, name in enumerate(names)}
    scores: dict = {
        "dev": {
            name: precision_recall(found["dev"][:, i] + offsets[name], right["dev"][:, i])
            for i, name in enumerate(names)
        }
    }
    either = (found["test"] + [offsets[name] for name in names]).max(1)
    scores["test"] = {"rule or trait": precision_recall(either, right["test"][:, 0])}
    save(args.out, "profile", network.state_dict(), offsets, scores)


def save(out: Path, name: str, state: dict[str, Tensor], offsets: dict, scores: dict) -> None:
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / f"{name}.npz", **{k: v.numpy().astype(np.float16) for k, v in state.items()})
    card = {
        "head": name,
        "offsets": {k: round(v, 3) for k, v in offsets.items()},
        "scores": scores,
        "sha256": hashlib.sha256((out / f"{name}.npz").read_bytes()).hexdigest(),
    }
    (out / f"{name}.json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    print(name, json.dumps({"offsets": card["offsets"], **scores}, indent=1))


def main() -> None:
    parser = m.options(__doc__)
    parser.add_argument("--encoder", type=Path, nargs="+", required=True)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    texts = m.texts_of(args.tokenizer)
    encoder = m.load(m.published_words(args.words), args.encoder, args.layers).eval()
    train_message(args, encoder, texts)
    train_profile(args, encoder, texts)


if __name__ == "__main__":
    main()
