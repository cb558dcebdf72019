r"""Train one head on the encoder, and report its held-out scores by language.

    python -m training.train_head relation --encoder encoder6.npz --words e5-small-q4.bin \
        --tokenizer tokenizer.json

Saves `<head>.npz` (low-rank changes and linear layers) and `<head>.json` (its card: data, scores, checksum).
A few minutes on two cores; `--resume` continues from saved weights. Batches are of similar length; what is
rare is drawn as often as what is frequent.
"""

import argparse
import hashlib
import json
import math
import random
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from training import model as m

TRIAGE = ("memory", "small_talk", "world", "tool", "self_contained")
ASKS = ("none", "remember", "forget", "off_record", "rule")
RELATION = ("apart", "same", "changed")
OWNERS = ("user", "other", "nobody")
SENSE = (
    "stated hedged hypothetical fiction quoted sarcastic transient"
    " instruction rule remember forget off_record"
).split()


def message(line: dict) -> str:
    """Return the text of a triage line as the product reads it: after the user's message before it."""
    before = [turn["content"] for turn in line.get("history") or () if turn["role"] == "user"]
    return "\n".join([*before[-1:], line["text"]])


def examples(task: str, line: dict) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return the two texts and the classes of each example in a line: one, or one for each memory."""
    if task == "forget":
        return [
            (line["message"], fact, (int(place in line["forget"]),))
            for place, fact in enumerate(line["facts"])
        ]
    return [example(task, line)]


def example(task: str, line: dict) -> tuple[str, str, tuple[int, ...]]:
    """Return the two texts and the classes of a line."""
    if task == "triage":
        before = "\n".join(turn["content"] for turn in line.get("history") or ())
        return line["text"], before, (TRIAGE.index(line["label"]),)
    if task == "ask":
        return line["text"], "", (ASKS.index(line["label"]),)
    if task == "relation":
        return line["old"], line["new"], (RELATION.index(line["label"]),)
    follows = (int(line["follows"]), OWNERS.index(line["whose"]), SENSE.index(line["sense"]))
    return line["message"], line["candidate"], follows


CLASSES = {
    "triage": (TRIAGE,),
    "ask": (ASKS,),
    "relation": (RELATION,),
    "forget": (("no", "yes"),),
    "statement": (("no", "yes"), OWNERS, SENSE),
}


def neighbours(
    data: Path, texts: m.Texts, encoder: m.Encoder, rng: random.Random, users: int = 120
) -> list[tuple]:
    """Return the nearest pairs among the memories of users, as pairs that are apart.

    Their memories are all current, so both hold. They teach the relation head what it sees most: memories
    about the same thing that are neither the same nor a change. Ten pairs of each user.
    """
    rows = list(m.lines(data, "retrieval", "train")) + list(m.lines(data, "relevance", "train"))
    found = []
    for lang, user in rng.sample(rows, min(users, len(rows))):
        facts = user["facts"]
        with torch.no_grad():
            tokens, mask, _ = m.batched([texts.pair(fact) for fact in facts])
            vectors = encoder.pooled(tokens, mask)
        near = (vectors @ vectors.T).triu(1).flatten().topk(min(10, len(facts))).indices.tolist()
        for place in near:
            pair = [facts[place // len(facts)], facts[place % len(facts)]]
            rng.shuffle(pair)
            found.append((lang, texts.pair(*pair), (RELATION.index("apart"),)))
    return found


def questions(data: Path, texts: m.Texts, rng: random.Random) -> list[tuple]:
    """Return questions with memories that answer them, and as many others of the same user.

    They teach the forget head to find what a message names; there are ten times as many of them."""
    found = []
    for lang, user in m.lines(data, "relevance", "train"):
        facts = user["facts"]
        for asked in user["asked"]:
            if asked.get("kind") not in ("question", "reworded"):
                continue
            others = [place for place in range(len(facts)) if place not in asked["a"]]
            for place in (*asked["a"][:2], *rng.sample(others, min(2, len(others)))):
                found.append((lang, texts.pair(asked["q"], facts[place]), (int(place in asked["a"]),)))
    return found


def read(args: argparse.Namespace, split: str, texts: m.Texts, rng: random.Random) -> list[tuple]:
    """Return (language, (ids, segments), classes) of a split."""
    rows = list(m.lines(args.data, args.task, split))
    found = []
    for lang, line in rows:
        for first, second, classes in examples(args.task, line):
            found.append((lang, texts.pair(first, second), classes))
    return found


def scores(head: m.Head, rows: list[tuple], names: tuple) -> dict:
    """Return accuracy and, for each class, precision and recall; by language and of all."""
    head.eval()
    guesses: list[list[int]] = []
    with torch.no_grad():
        for at in range(0, len(rows), 64):
            outs = head(*m.batched([row[1] for row in rows[at : at + 64]]))
            guesses += np.stack([out.argmax(1).numpy() for out in outs], 1).tolist()
    head.train()
    report: dict = {}
    for k, classes in enumerate(names):
        by_lang: dict[str, list[bool]] = defaultdict(list)
        hits, said, true = Counter(), Counter(), Counter()
        for (lang, _, gold), guess in zip(rows, guesses, strict=True):
            by_lang[lang].append(gold[k] == guess[k])
            true[gold[k]] += 1
            said[guess[k]] += 1
            hits[gold[k]] += gold[k] == guess[k]
        every = [x for xs in by_lang.values() for x in xs]
        report[f"q{k}"] = {
            "accuracy": round(float(np.mean(every)), 3),
            "by_language": {
                lang: (round(float(np.mean(x)), 3), len(x)) for lang, x in sorted(by_lang.items())
            },
            "classes": {
                name: {
                    "precision": round(hits[i] / said[i], 3) if said[i] else None,
                    "recall": round(hits[i] / true[i], 3) if true[i] else None,
                    "n": true[i],
                }
                for i, name in enumerate(classes)
                if true[i] or said[i]
            },
        }
    return report


def similar_length(rows: list[tuple], size: int) -> list[list[int]]:
    """Return the rows once, in random batches of similar length: padding would double the work."""
    order = random.sample(range(len(rows)), len(rows))
    batches: list[list[int]] = []
    for at in range(0, len(order), 10 * size):
        pool = sorted(order[at : at + 10 * size], key=lambda i: len(rows[i][1][0]))
        batches += [pool[i : i + size] for i in range(0, len(pool), size)]
    return random.sample(batches, len(batches))


def fit(head: m.Head, rows: list[tuple], held: list[tuple], args: argparse.Namespace, names: tuple) -> None:
    parameters = [p for p in head.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=args.lr, weight_decay=0.02)
    steps = math.ceil(args.epochs * len(rows) / args.batch)
    counts = [Counter(row[2][k] for row in rows) for k in range(len(names))]
    weights = [
        torch.tensor(
            [(len(rows) / (len(c) * count[i])) ** 0.5 if count[i] else 0.0 for i in range(len(c))]
        ).float()
        for c, count in zip(names, counts, strict=True)
    ]
    started, step, loss_now = time.time(), 0, 0.0
    batches: list[list[int]] = []
    while step < steps:
        batches = batches or similar_length(rows, args.batch)
        picked = [rows[i] for i in batches.pop()]
        tokens, mask, segments = m.batched([row[1] for row in picked])
        drop = torch.rand(tokens.shape) < 0.06
        mask = mask & ~drop | (segments == 0) & (torch.arange(tokens.shape[1]) == 0) & mask
        with torch.autocast("cpu", torch.bfloat16):
            outs = head(tokens, mask, segments)
        loss = sum(
            F.cross_entropy(
                out.float(), torch.tensor([row[2][k] for row in picked]), weights[k], label_smoothing=0.03
            )
            for k, out in enumerate(outs)
        )
        for group in optimiser.param_groups:
            group["lr"] = (
                args.lr * min(1, (step + 1) / 30) * max(0.03, 0.5 * (1 + math.cos(math.pi * step / steps)))
            )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        step += 1
        loss_now = 0.95 * loss_now + 0.05 * loss.item() if step > 1 else loss.item()
        if step % 50 == 0 or step == steps:
            print(step, "of", steps, round(time.time() - started), "s loss", round(loss_now, 4), flush=True)
        if held and step % args.look == 0:
            print({k: v["accuracy"] for k, v in scores(head, held, names).items()}, flush=True)


def main() -> None:
    parser = m.options(__doc__)
    parser.add_argument("task", choices=CLASSES)
    parser.add_argument("--encoder", type=Path, nargs="+", required=True)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--epochs", type=float, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--look", type=int, default=10_000)
    parser.add_argument("--resume", type=Path, help="weights of an earlier run, of the same rank")
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    rng = random.Random(0)
    texts = m.texts_of(args.tokenizer)
    names = CLASSES[args.task]
    rows, held = read(args, "train", texts, rng), read(args, "dev", texts, rng)
    encoder = m.load(m.published_words(args.words), args.encoder, 6)
    if args.task == "relation":
        rows += neighbours(args.data, texts, encoder, rng)
    if args.task == "forget":
        rows += rows + questions(args.data, texts, rng)
    head = m.Head(encoder, [len(c) for c in names], args.rank, args.layers)
    print(
        len(rows),
        "to train,",
        len(held),
        "held out;",
        sum(p.numel() for p in head.trained().values()),
        "numbers",
    )
    if args.resume:
        m.restore(head, args.resume)
    fit(head, rows, held, args, names)
    report = {"dev": scores(head, held, names)}
    if test := read(args, "test", texts, rng):
        report["test"] = scores(head, test, names)
    args.out.mkdir(parents=True, exist_ok=True)
    target = args.out / f"{args.task}.npz"
    np.savez_compressed(target, **m.packed(head.trained()))
    card = {
        "head": args.task,
        "layers": args.layers,
        "rank": args.rank,
        "classes": names,
        "trained_on": dict(Counter(row[0] for row in rows)),
        "scores": report,
        "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
    }
    (args.out / f"{args.task}.json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
