"""The encoder in torch, for training: multilingual-e5-small's word embeddings, frozen, under our own layers.

The product runs the same network in onnxruntime. Weights are saved as int8 with one scale per output row
(`NAME.q`, `NAME.s`); vectors are float16.
"""

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

WIDTH, HEADS, POSITIONS = 384, 12, 128
PAD, END = 1, 2  # token ids
QUESTION, MEMORY = "query: ", "passage: "  # before texts that are embedded; the pair heads read none


class Layer(nn.Module):
    """One transformer layer, as BERT has it (norm after the residual)."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.ao = nn.Linear(WIDTH, WIDTH)
        self.n1 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.n2 = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(*parts, attn_mask=mask)
        x = self.n1(x + self.ao(read.transpose(1, 2).reshape(batch, length, WIDTH)))
        return self.n2(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    """Token ids to the hidden states of the last layer; `pooled` to unit vectors."""

    def __init__(self, words: Tensor, layers: int, positions: int = POSITIONS) -> None:
        super().__init__()
        self.words = words  # not a parameter: frozen, and not saved
        self.pos = nn.Parameter(torch.zeros(positions, WIDTH))
        self.seg = nn.Parameter(torch.zeros(WIDTH))
        self.n0 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.n0(self.words[tokens].float() + self.pos[: tokens.shape[1]] + self.seg)
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        return x

    def pooled(self, tokens: Tensor, mask: Tensor) -> Tensor:
        weight = mask[..., None].float()
        return F.normalize((self(tokens, mask).float() * weight).sum(1) / weight.sum(1), dim=-1)


def load(words: Tensor, files: Sequence[Path], layers: int) -> Encoder:
    """Return the encoder with the weights of the files (int8 rows or plain arrays)."""
    arrays: dict[str, np.ndarray] = {}
    for file in files:
        arrays.update(np.load(file))
    encoder = Encoder(
        words, layers, len(_array(arrays, "pos.weight" if _has(arrays, "pos.weight") else "pos"))
    )
    state = {}
    for name, value in encoder.state_dict().items():
        found = _array(arrays, "pos.weight" if name == "pos" and _has(arrays, "pos.weight") else name)
        state[name] = torch.tensor(found[0] if name == "seg" and found.ndim == 2 else found).reshape(
            value.shape
        )
    encoder.load_state_dict(state)
    return encoder


def _has(arrays: dict[str, np.ndarray], name: str) -> bool:
    return name in arrays or f"{name}.q" in arrays


def _array(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name in arrays:
        return arrays[name].astype(np.float32)
    return arrays[f"{name}.q"].astype(np.float32) * arrays[f"{name}.s"].astype(np.float32)


def packed(state: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Return the tensors as int8 rows with scales, vectors as float16."""
    found: dict[str, np.ndarray] = {}
    for name, tensor in state.items():
        value = tensor.detach().float().numpy()
        if value.ndim < 2:
            found[name] = value.astype(np.float16)
            continue
        scale = np.maximum(np.abs(value).max(1, keepdims=True) / 127, 1e-8)
        found[f"{name}.q"], found[f"{name}.s"] = (
            np.round(value / scale).astype(np.int8),
            scale.astype(np.float32),
        )
    return found


def published_words(blob: Path) -> Tensor:
    """Return the published word embeddings (float16), as scripts/fetch-models takes them out of a wheel."""
    from proxy.models import vocabulary

    return torch.tensor(vocabulary.published_words(vocabulary.published(blob)).astype(np.float16))


# ---------------------------------------------------------------- heads
class LowRank(nn.Module):
    """A linear layer of the frozen encoder plus a trained change of rank `rank`."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + (x @ self.down.T) @ self.up.T


class Head(nn.Module):
    """A judge on the encoder: one or two texts read together, one linear layer for each of its questions.

    Only low-rank changes, a segment row for the second text and the linear layers are trained and saved.
    """

    def __init__(self, encoder: Encoder, classes: Sequence[int], rank: int, layers: int) -> None:
        super().__init__()
        for parameter in encoder.parameters():
            parameter.requires_grad_(False)
        self.encoder = encoder
        self.depth = layers
        for layer in encoder.layers[:layers]:
            for name in ("qkv", "ao", "up", "down"):
                setattr(layer, name, LowRank(getattr(layer, name), rank))
        self.second = nn.Parameter(torch.zeros(WIDTH))  # added to the tokens of the second text
        self.outs = nn.ModuleList(nn.Linear(2 * WIDTH, n) for n in classes)

    def forward(self, tokens: Tensor, mask: Tensor, segments: Tensor) -> list[Tensor]:
        e = self.encoder
        x = e.n0(
            e.words[tokens].float() + e.pos[: tokens.shape[1]] + e.seg + segments[..., None] * self.second
        )
        for layer in e.layers[: self.depth]:
            x = layer(x, mask[:, None, None, :])
        first, second = (
            (mask & (segments == 0))[..., None].float(),
            (mask & (segments == 1))[..., None].float(),
        )
        means = [(x * part).sum(1) / part.sum(1).clamp(min=1) for part in (first, second)]
        both = torch.cat(means, dim=1)
        return [out(both) for out in self.outs]

    def trained(self) -> dict[str, Tensor]:
        """Return what is saved: everything but the frozen encoder."""
        return {n: p for n, p in self.named_parameters() if p.requires_grad}


def restore(head: Head, file: Path) -> None:
    """Load what `Head.trained` saved. Raises KeyError or RuntimeError for a head of another shape."""
    with np.load(file) as held:
        arrays = dict(held)
    with torch.no_grad():
        for name, parameter in head.trained().items():
            parameter.copy_(torch.tensor(_array(arrays, name)).reshape(parameter.shape))


@dataclass(frozen=True, slots=True)
class Texts:
    """Tokenises one text or two, each cut to its own bound, into one sequence."""

    tokenizer: Tokenizer
    most: int = POSITIONS

    def pair(self, first: str, second: str = "") -> tuple[list[int], list[int]]:
        """Return token ids and segments (0, 1) of at most `most` tokens. The first text gives way."""
        b = self.tokenizer.encode(second).ids[1:][: self.most // 2] if second else []
        a = self.tokenizer.encode(first).ids
        room = self.most - len(b)
        if len(a) > room:  # what a user adds at the end counts as much as how they begin
            a = a[: room // 2] + a[-(room - room // 2) :]
        return a + b, [0] * len(a) + [1] * len(b)


def batched(rows: Sequence[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, mask and segments, padded to the longest row."""
    longest = max(len(ids) for ids, _ in rows)
    tokens = torch.full((len(rows), longest), PAD)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    segments = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, (ids, segs) in enumerate(rows):
        tokens[i, : len(ids)], segments[i, : len(segs)] = torch.tensor(ids), torch.tensor(segs)
        mask[i, : len(ids)] = True
    return tokens, mask, segments


def options(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of what every training script takes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--words", type=Path, required=True, help="e5-small-q4.bin")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--out", type=Path, required=True)
    return parser


def texts_of(file: Path, most: int = POSITIONS) -> Texts:
    """Return the texts of the published tokenizer."""
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return Texts(tokenizer, most)


def lines(folder: Path, task: str, split: str) -> Iterator[tuple[str, dict]]:
    """Yield (language, line) of a task and split."""
    for file in sorted((folder / split).glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as text:
            for line in map(json.loads, text):
                if line["task"] == task:
                    yield file.name.split(".")[0], line
