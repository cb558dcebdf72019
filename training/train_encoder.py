r"""Train the encoder's layers: a question must be near to what answers it, in every language of the data.

    python -m training.train_encoder --start encoder6.npz --teacher encoder12_0.npz encoder12_1.npz \
        --words e5-small-q4.bin --tokenizer tokenizer.json --seconds 1900 --out encoder.npz

Losses: contrastive within each user's memories (retrieval and relevance users), the cosine and the rows of
similarities of the teacher (left out without `--teacher`), and the class of triage messages, so that one pass
gives the vector and what the message needs. The word embeddings are frozen. Writes a checkpoint next to
`--out` every five minutes and continues from it. memory-e5-small-v2 took 32 minutes on two busy cores (166
steps of 12 users) from a six-layer encoder distilled before.
"""

import math
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training import model as m
from training.train_head import TRIAGE, message

SCALE, ELSEWHERE = 25.0, 0.05  # of cosines; what another user's memory must be less near


class User:
    """One invented user: token ids of the memories, of the questions with their answers, of the others."""

    def __init__(self, line: dict, texts: m.Texts) -> None:
        self.facts = [texts.pair(m.MEMORY + fact)[0] for fact in line["facts"]]
        self.asked = [
            (texts.pair(m.QUESTION + asked["q"])[0], list(asked["a"]))
            for asked in line["asked"]
            if asked["a"]
        ]
        self.missing = [texts.pair(m.QUESTION + missing["q"])[0] for missing in line["missing"]]


def encode(encoder: m.Encoder, texts: Sequence[list[int]], size: int = 128) -> Tensor:
    """Return unit vectors in order; batches hold texts of similar length."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    parts = []
    for at in range(0, len(order), size):
        tokens, mask, _ = m.batched([(texts[i], [0] * len(texts[i])) for i in order[at : at + size]])
        with torch.autocast("cpu", torch.bfloat16):
            parts.append(encoder.pooled(tokens, mask))
    return torch.cat(parts).float()[torch.argsort(torch.tensor(order))]


def contrast(users: Sequence[User], vectors: Tensor, offsets: list[tuple[int, int]]) -> Tensor:
    """Return the loss of finding what answers among all memories of the batch. `places`: the rows of each
    user's questions and memories."""
    losses = []
    memories = torch.cat(
        [vectors[facts : facts + len(u.facts)] for u, (_, facts) in zip(users, offsets, strict=True)]
    )
    first = 0
    for user, (questions, _) in zip(users, offsets, strict=True):
        scores = vectors[questions : questions + len(user.asked)] @ memories.T - ELSEWHERE
        own = slice(first, first + len(user.facts))
        scores[:, own] += ELSEWHERE
        right = torch.zeros_like(scores, dtype=torch.bool)
        for row, (_, answers) in enumerate(user.asked):
            right[row, [first + answer for answer in answers]] = True
        scores = SCALE * scores
        losses.append(torch.logsumexp(scores, 1) - torch.logsumexp(scores.masked_fill(~right, -1e4), 1))
        first += len(user.facts)
    return torch.cat(losses).mean()


def sampled(user: User, rng: random.Random) -> User:
    """Return the user with at most twelve of the questions and four of the others."""
    some = object.__new__(User)
    some.facts = user.facts
    some.asked = rng.sample(user.asked, min(12, len(user.asked)))
    some.missing = rng.sample(user.missing, min(4, len(user.missing)))
    return some


def step(
    student: m.Encoder,
    teacher: m.Encoder | None,
    needs: nn.Module,
    users: Sequence[User],
    messages: Sequence[tuple[list[int], int]],
) -> Tensor:
    """Return the loss of one batch of users and triage messages."""
    texts: list[list[int]] = []
    offsets = []
    for user in users:
        at = len(texts)
        texts += [question for question, _ in user.asked] + user.missing
        offsets.append((at, len(texts)))
        texts += user.facts
    first_message = len(texts)
    texts += [ids for ids, _ in messages]
    vectors = encode(student, texts)
    classes = torch.tensor([label for _, label in messages])
    loss = 0.5 * contrast(users, vectors, offsets)
    loss = loss + 0.3 * F.cross_entropy(needs(8 * vectors[first_message:]), classes, label_smoothing=0.05)
    if teacher is not None:
        with torch.no_grad():
            wanted = encode(teacher, texts)
        loss = loss + 4 * (1 - (vectors * wanted).sum(1)).mean()
        theirs, ours = F.softmax(SCALE * wanted @ wanted.T, 1), F.log_softmax(SCALE * vectors @ vectors.T, 1)
        loss = loss + 0.5 * F.kl_div(ours, theirs, reduction="batchmean")
    return loss


def recall(encoder: m.Encoder, users: Sequence[User]) -> list[float]:
    """Return recall@1, @5 and @10 by cosine."""
    found = []
    with torch.no_grad():
        for user in users:
            vectors = encode(encoder, [*user.facts, *(q for q, _ in user.asked)])
            memories = vectors[: len(user.facts)]
            for (_, answers), vector in zip(user.asked, vectors[len(user.facts) :], strict=True):
                order = (memories @ vector).argsort(descending=True).tolist()
                found.append([len(set(answers) & set(order[:k])) / min(k, len(answers)) for k in (1, 5, 10)])
    return [round(float(x), 3) for x in np.mean(found, axis=0)]


def main() -> None:
    parser = m.options(__doc__)
    parser.add_argument("--start", type=Path, nargs="+", required=True, help="layers to start from")
    parser.add_argument("--teacher", type=Path, nargs="*", default=[], help="twelve layers to learn from")
    parser.add_argument("--seconds", type=float, default=1900)
    parser.add_argument("--users", type=int, default=12, help="in a batch")
    parser.add_argument("--lr", type=float, default=2e-4)
    args = parser.parse_args()
    rng = random.Random(0)
    torch.manual_seed(0)
    texts, words = m.texts_of(args.tokenizer, most=64), m.published_words(args.words)

    def users(task: str, split: str) -> list[User]:
        return [User(line, texts) for _, line in m.lines(args.data, task, split)]

    retrieval, relevance = users("retrieval", "train"), users("relevance", "train")
    held = users("retrieval", "dev")[:40] + users("relevance", "dev")
    messages = [
        (texts.pair(m.QUESTION + message(line))[0], TRIAGE.index(line["label"]))
        for _, line in m.lines(args.data, "triage", "train")
    ]
    student = m.load(words, args.start, args.layers)
    teacher = m.load(words, args.teacher, 12).eval() if args.teacher else None
    needs = nn.Sequential(nn.Linear(m.WIDTH, 128), nn.GELU(), nn.Linear(128, len(TRIAGE)))
    parameters = [*student.parameters(), *needs.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=args.lr, weight_decay=0.01)
    checkpoint, spent, steps = args.out.with_suffix(".pt"), 0.0, 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        student.load_state_dict(state["student"])
        needs.load_state_dict(state["needs"])
        optimiser.load_state_dict(state["optimiser"])
        spent, steps = state["spent"], state["steps"]
    print("recall@1/@5/@10 of held-out users:", recall(student, held), flush=True)
    began = saved = time.monotonic()
    while (now := spent + time.monotonic() - began) < args.seconds:
        rate = (
            args.lr * min(1, (steps + 1) / 50) * max(0.02, 0.5 + 0.5 * math.cos(math.pi * now / args.seconds))
        )
        for group in optimiser.param_groups:
            group["lr"] = rate
        batch = [*rng.sample(retrieval, args.users), *rng.sample(relevance, 2)]
        loss = step(
            student, teacher, needs, [sampled(u, rng) for u in batch if u.asked], rng.sample(messages, 32)
        )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        steps += 1
        if steps % 25 == 0:
            print(steps, "steps,", round(now), "s, loss", round(loss.item(), 4), flush=True)
        if time.monotonic() - saved > 300:
            state = {"student": student.state_dict(), "needs": needs.state_dict(), "spent": now}
            temporary = checkpoint.with_suffix(".tmp")
            torch.save({**state, "optimiser": optimiser.state_dict(), "steps": steps}, temporary)
            os.replace(temporary, checkpoint)
            saved = time.monotonic()
    print("recall@1/@5/@10 of held-out users:", recall(student, held))
    np.savez(args.out, **{name: value.numpy() for name, value in student.state_dict().items()})


if __name__ == "__main__":
    main()
