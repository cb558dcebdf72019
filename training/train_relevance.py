r"""Train the relevance head: does the memory help with the message?

    python -m training.train_relevance --encoder encoder.npz --words e5-small-q4.bin \
        --tokenizer tokenizer.json --seconds 1500 --out heads

A small transformer reads the encoder's hidden states of message and memory as one sequence. The encoder is
frozen, so the states of every text are computed once, before the training. Each message comes with the
memories that help and with the nearest others; a message that nothing helps comes with the nearest. Loss: is
it right of each pair, and do those that help come first. The card has, for the nearest memories of every
held-out message, how many messages get something where nothing helps while 2 to 6 % of the others are silent.
"""

import hashlib
import json
import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training import model as m

DIM, BLOCKS, ATTENTION_HEADS = 96, 2, 4  # as proxy/models/judge.py reads them
MESSAGE_TOKENS, MEMORY_TOKENS = 64, 48
NEAREST, READ = 12, 4
COSINE_SCALE = 4.0
COSINE = (15.95, -9.07)  # slope and constant of the logistic curve over the cosine, fitted on retrieval's dev
FAR = -1e4


class States:
    """Hidden states (float16) and unit vectors of texts, each computed once."""

    def __init__(self, encoder: m.Encoder, texts: m.Texts) -> None:
        self._encoder, self._texts = encoder, texts
        self._at: dict[str, int] = {}
        self._tokens: list[list[int]] = []

    def add(self, text: str) -> int:
        """Return the text's number."""
        if text not in self._at:
            self._at[text] = len(self._tokens)
            self._tokens.append(self._texts.pair(text)[0][: m.POSITIONS])
        return self._at[text]

    def compute(self) -> None:
        """Run the encoder over all texts, those of similar length together."""
        lengths = np.array([min(len(ids), MESSAGE_TOKENS) for ids in self._tokens])
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        self.flat = torch.zeros(int(self.offsets[-1]), m.WIDTH, dtype=torch.float16)
        self.vectors = np.zeros((len(lengths), m.WIDTH), np.float32)
        order = np.argsort([len(ids) for ids in self._tokens])
        began = time.monotonic()
        for at in range(0, len(order), 192):
            picked = order[at : at + 192]
            tokens, mask, _ = m.batched([(self._tokens[i], [0] * len(self._tokens[i])) for i in picked])
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                states = self._encoder(tokens, mask).float()
            weights = mask[..., None].float()
            mean = F.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)
            for row, i in enumerate(picked):
                start, end = self.offsets[i], self.offsets[i + 1]
                self.flat[start:end] = states[row, : end - start].half()
                self.vectors[i] = mean[row].numpy()
            if at % 19_200 == 0:
                print("states", at, "of", len(order), round(time.monotonic() - began), "s", flush=True)

    def gather(self, picked: Sequence[int], most: int) -> tuple[Tensor, Tensor]:
        """Return padded states and their mask, each text cut to `most` tokens."""
        lengths = [min(int(self.offsets[i + 1] - self.offsets[i]), most) for i in picked]
        states = torch.zeros(len(picked), max(lengths), m.WIDTH)
        mask = torch.zeros(len(picked), max(lengths), dtype=torch.bool)
        for row, (i, length) in enumerate(zip(picked, lengths, strict=True)):
            states[row, :length] = self.flat[self.offsets[i] : self.offsets[i] + length].float()
            mask[row, :length] = True
        return states, mask


@dataclass(frozen=True, slots=True)
class Asked:
    """A message with its user's memories, as numbers of texts. `helps`: places among the memories."""

    message: int
    memories: list[int]
    helps: frozenset[int]

    def nearest(self, states: States, most: int = NEAREST) -> tuple[list[int], np.ndarray]:
        """Return the places of the nearest memories, and the cosines of all."""
        cosines = states.vectors[self.memories] @ states.vectors[self.message]
        return np.argsort(-cosines)[:most].tolist(), cosines


def asked(data: Path, task: str, split: str, states: States) -> list[Asked]:
    """Return the messages of a task's users."""
    found = []
    for _, user in m.lines(data, task, split):
        memories = [states.add(m.MEMORY + fact) for fact in user["facts"]]
        questions = [(one["q"], frozenset(one["a"])) for one in user["asked"]]
        questions += [(one["q"], frozenset()) for one in user["missing"]]
        found += [Asked(states.add(m.QUESTION + text), memories, helps) for text, helps in questions]
    return found


class Block(nn.Module):
    """Pre-norm attention and a feed-forward layer of twice the width."""

    def __init__(self) -> None:
        super().__init__()
        self.n1, self.n3 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.o = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.dn = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows, length, _ = x.shape

        def split(part: Tensor) -> Tensor:
            return part.view(rows, length, ATTENTION_HEADS, -1).transpose(1, 2)

        q, k, v = (split(part) for part in self.qkv(self.n1(x)).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        x = x + self.o(seen.transpose(1, 2).reshape(rows, length, DIM))
        return x + self.dn(F.gelu(self.up(self.n3(x))))


class Reader(nn.Module):
    """The transformer that proxy/models/judge.py runs."""

    def __init__(self) -> None:
        super().__init__()
        self.pq, self.pm = nn.Linear(m.WIDTH, DIM), nn.Linear(m.WIDTH, DIM)
        self.nq, self.nm = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.seg = nn.Parameter(torch.randn(2, DIM) * 0.02)
        self.bl = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.f1, self.f2 = nn.Linear(4 * DIM + 1, DIM), nn.Linear(DIM, 1)
        self.drop = nn.Dropout(0.1)

    def forward(
        self,
        messages: tuple[Tensor, Tensor],
        memories: tuple[Tensor, Tensor],
        cosines: Tensor,
        owners: Tensor,
    ) -> Tensor:
        """Return one logit a memory; `owners` is the row of each memory's message."""
        (said, said_mask), (known, known_mask) = messages, memories
        first = self.drop(self.nq(self.pq(said)) + self.seg[0])[owners]
        second = self.drop(self.nm(self.pm(known)) + self.seg[1])
        x = torch.cat([first, second], 1)
        mask = torch.cat([said_mask[owners], known_mask], 1)
        for block in self.bl:
            x = block(x, mask)
        length = first.shape[1]
        pooled = [
            pool(part, part_mask)
            for part, part_mask in (
                (x[:, :length], mask[:, :length]),
                (x[:, length:], mask[:, length:]),
            )
            for pool in (_mean, _maximum)
        ]
        both = torch.cat([*pooled, cosines[:, None] * COSINE_SCALE], 1)
        return self.f2(self.drop(F.gelu(self.f1(both)))).squeeze(1)


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def _maximum(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask[..., None], FAR).max(1).values


def logits(
    reader: Reader, states: States, batch: Sequence[tuple[Asked, list[int], np.ndarray]]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, right answers and owners of the places that each message of the batch is given."""
    memories, owners, cosines, right = [], [], [], []
    for row, (one, candidates, near) in enumerate(batch):
        for place in candidates:
            memories.append(one.memories[place])
            owners.append(row)
            cosines.append(near[place])
            right.append(float(place in one.helps))
    with torch.autocast("cpu", torch.bfloat16):
        found = reader(
            states.gather([one.message for one, _, _ in batch], MESSAGE_TOKENS),
            states.gather(memories, MEMORY_TOKENS),
            torch.tensor(np.array(cosines, np.float32)),
            torch.tensor(owners),
        )
    return found.float(), torch.tensor(right), torch.tensor(owners)


def drawn(
    pools: Sequence[list[Asked]], states: States, rng: random.Random
) -> Iterator[list[tuple[Asked, list[int], np.ndarray]]]:
    """Yield batches of 60 messages, as many from either pool, of similar length."""
    while True:
        some = [one for pool in pools for one in rng.sample(pool, min(len(pool), 120))]
        some.sort(key=lambda one: int(states.offsets[one.message + 1] - states.offsets[one.message]))
        batches = [some[at : at + 60] for at in range(0, len(some), 60)]
        rng.shuffle(batches)
        for batch in batches:
            given = []
            for one in batch:
                near, cosines = one.nearest(states, 7)
                others = rng.sample(range(len(one.memories)), min(3, len(one.memories)))
                candidates = list(dict.fromkeys([*one.helps, *near, *others]))[:NEAREST]
                given.append((one, candidates, cosines))
            yield given


def fit(reader: Reader, states: States, pools: Sequence[list[Asked]], seconds: float, rate: float) -> None:
    optimiser = torch.optim.AdamW(reader.parameters(), lr=rate, weight_decay=0.02)
    began, shown = time.monotonic(), 0.0
    for steps, batch in enumerate(drawn(pools, states, random.Random(0)), 1):
        spent = time.monotonic() - began
        if spent >= seconds:
            return
        share = max(0.02, 0.5 + 0.5 * math.cos(math.pi * spent / seconds))
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, steps / 50) * share
        found, right, owners = logits(reader, states, batch)
        loss = F.binary_cross_entropy_with_logits(found, right * 0.98 + 0.01)
        first = [
            torch.logsumexp(found[owners == row], 0)
            - torch.logsumexp(found[(owners == row) & (right > 0)], 0)
            for row, (one, _, _) in enumerate(batch)
            if one.helps
        ]
        loss = loss + 0.25 * torch.stack(first).sum() / len(batch)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        optimiser.step()
        shown = loss.item() if steps == 1 else 0.98 * shown + 0.02 * loss.item()
        if steps % 100 == 0:
            print(steps, "steps,", round(spent), "s, loss", round(shown, 4), flush=True)


@torch.no_grad()
def report(reader: Reader, states: States, messages: list[Asked]) -> dict:
    """Return, by the share of answered messages that get nothing: the logit, and what is shown wrongly."""
    reader.eval()
    best, answered, found5 = [], [], []
    for at in range(0, len(messages), 48):
        batch = [(one, *one.nearest(states)) for one in messages[at : at + 48]]
        found, right, owners = logits(reader, states, batch)
        for row, (one, _, _) in enumerate(batch):
            mine, helps = found[owners == row], right[owners == row]
            best.append(float(mine[:READ].max()))
            answered.append(bool(one.helps))
            if one.helps:
                top = mine.argsort(descending=True)[:5]
                found5.append(float(helps[top].sum()) / len(one.helps))
    reader.train()
    scores, right_ones = np.array(best), np.array(answered)
    ranked = np.sort(scores[right_ones])
    shown = {}
    for silent in (0.02, 0.04, 0.06):
        least = ranked[int(silent * len(ranked))]
        wrong = float((scores[~right_ones] >= least).mean())
        shown[f"{silent:.2f}"] = {"logit": round(float(least), 2), "shown": round(wrong, 3)}
    return {
        "messages": len(messages),
        "recall@5": round(float(np.mean(found5)), 3),
        "silent to shown where nothing helps": shown,
    }


def main() -> None:
    parser = m.options(__doc__)
    parser.add_argument("--encoder", type=Path, nargs="+", required=True)
    parser.add_argument("--seconds", type=float, default=1500)
    parser.add_argument("--rate", type=float, default=1.2e-3)
    parser.add_argument("--resume", type=Path, help="weights of an earlier run")
    args = parser.parse_args()
    torch.manual_seed(0)
    encoder = m.load(m.published_words(args.words), args.encoder, args.layers).eval()
    states = States(encoder, m.texts_of(args.tokenizer))
    pools = [asked(args.data, task, "train", states) for task in ("retrieval", "relevance")]
    held = {
        f"{task} {split}": asked(args.data, task, split, states)
        for task in ("relevance", "retrieval")
        for split in ("dev", "test")
    }
    states.compute()
    reader = Reader()
    if args.resume:
        with np.load(args.resume) as saved:
            reader.load_state_dict({n: torch.tensor(saved[n]).float() for n in reader.state_dict()})
    fit(reader, states, pools, args.seconds, args.rate)
    args.out.mkdir(parents=True, exist_ok=True)
    target = args.out / "relevance.npz"
    arrays = {name: value.numpy().astype(np.float16) for name, value in reader.state_dict().items()}
    np.savez_compressed(target, **arrays, cosine=np.array(COSINE, np.float32))
    languages = Counter(lang for lang, _ in m.lines(args.data, "relevance", "train"))
    card = {
        "head": "relevance",
        "classes": [["no", "yes"]],
        "trained_on": {"messages": [len(pool) for pool in pools], "users by language": languages},
        "scores": {name: report(reader, states, messages) for name, messages in held.items() if messages},
        "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
    }
    (args.out / "relevance.json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(card["scores"], indent=1))


if __name__ == "__main__":
    main()
