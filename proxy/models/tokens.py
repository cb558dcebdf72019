"""Token counts: exact where tiktoken's tables are installed, estimated where they are not.

tiktoken itself fetches its tables over the network, without a timeout. Here the tables are read from
a directory of ours (`scripts/fetch-models` fills it) and handed to tiktoken's encoder ready made, so
that no call can end in a download. Loading takes about 0.4 s and happens in a thread; until it is
done, counts are estimates.
"""

import hashlib
import re
import sys
import threading
from binascii import a2b_base64
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proxy import telemetry
from proxy.domain.limits import TTLCache, trim_heap

if TYPE_CHECKING:
    from tiktoken import Encoding


# Longer texts are counted on this many characters and scaled, so that no count takes milliseconds.
_MAX_CHARS = 32_768


@dataclass(frozen=True, slots=True)
class EncodingTable:
    """One of OpenAI's encodings. `file` is the name in tiktoken's cache; the patterns are tiktoken's."""

    name: str
    file: str
    sha256: str
    pattern: str


_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"

O200K = EncodingTable(
    "o200k_base",
    "fb374d419588a4632f3f557e76b4b70aebbca790",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTION}|{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
CL100K = EncodingTable(
    "cl100k_base",
    "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
)
TABLES = (O200K, CL100K)

# gpt-4 and gpt-4-turbo but not gpt-4o, gpt-4.1 or gpt-4.5; after a provider or a fine-tune's prefix too.
_CL100K_MODELS = re.compile(r"(?:^|[/:])(?:gpt-4(?![\w.])|gpt-3\.?5|text-embedding-)")


def table_of(model: str) -> EncodingTable:
    """Return the table of a model; for a model that is not OpenAI's, the newest as the nearest guess."""
    return CL100K if _CL100K_MODELS.search(model) else O200K


def tables_dir() -> Path:
    """Return where `scripts/fetch-models` puts the tables: inside the environment that runs us."""
    return Path(sys.prefix, "share", "memory-proxy", "tiktoken")


_MOST_COUNTS = 8_192
_LOADED: dict[str, "Encoding"] = {}  # of this process: an intact table always makes the same encoding


class Tokens:
    """Implements ports.TokenCounter. Thread-safe; it never waits for a table and never raises."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or tables_dir()
        self._lock = threading.Lock()
        self._loading: dict[str, Future[Encoding | None]] = {}
        self._counts = TTLCache[int, int](_MOST_COUNTS)

    def count(self, text: str, model: str) -> int:
        """Return the number of tokens of the text; special tokens count as the text they are."""
        table = table_of(model)
        loading = self._loading.get(table.name) or self.start(table)
        encoding = loading.result() if loading.done() else None
        if encoding is None:
            return estimate(text, table.name)
        if len(text) > _MAX_CHARS:
            return round(len(encoding.encode_ordinary(text[:_MAX_CHARS])) * len(text) / _MAX_CHARS)
        key = hash((table.name, text))  # the same memories are counted again and again
        if (count := self._counts.get(key)) is None:
            count = len(encoding.encode_ordinary(text))
            self._counts.put(key, count)
        return count

    def start(self, table: EncodingTable = O200K) -> "Future[Encoding | None]":
        """Begin to load the table, once. The last 0.13 s hold the interpreter's lock, so do it before the
        first request."""
        with self._lock:
            if table.name not in self._loading:
                pool = ThreadPoolExecutor(1, thread_name_prefix="tokens")
                self._loading[table.name] = pool.submit(_load, table, self._directory / table.file)
                pool.shutdown(wait=False)  # the thread ends with its one task
            return self._loading[table.name]

    def exact(self, table: EncodingTable = O200K) -> bool:
        """Wait until the table is loaded or known to be missing; True if counts are exact."""
        return self.start(table).result() is not None


def is_intact(table: EncodingTable, file: Path) -> bool:
    """True if the file is there and is the published table."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() == table.sha256
    except OSError:
        return False


def _load(table: EncodingTable, file: Path) -> "Encoding | None":
    """Return the encoding, or None, said in the log, where its table cannot be used."""
    if not is_intact(table, file):
        telemetry.log.info(
            "tokens.estimated", encoding=table.name, reason="missing" if not file.exists() else "damaged"
        )
        return None
    try:
        from tiktoken import Encoding

        if table.name not in _LOADED:
            with file.open("rb") as lines:  # 200,000 of a token and its rank
                pairs = (line.split() for line in lines)
                ranks = {a2b_base64(token): int(rank) for token, rank in pairs}
            encoding = Encoding(table.name, pat_str=table.pattern, mergeable_ranks=ranks, special_tokens={})
            encoding._mergeable_ranks.clear()  # 27 MB that only tiktoken's own loading needs
            _LOADED[table.name] = encoding
            del ranks
            trim_heap()
        return _LOADED[table.name]
    except (ImportError, OSError, ValueError) as e:
        telemetry.log.warning("tokens.estimated", encoding=table.name, reason=type(e).__name__)
        return None


# ---------------------------------------------------------------- estimates
# Classes of characters, the first that matches wins: pattern, how many characters of a run are free, and the
# cost of a run and of each further character, in o200k_base and in cl100k_base.
_CLASSES: dict[str, tuple[str, int, tuple[float, float], tuple[float, float]]] = {
    "latin": ("[A-Za-z]*[À-ɏḀ-ỿ][A-Za-zÀ-ɏḀ-ỿ]*", 0, (0.71, 0.15), (1.37, 0.20)),
    "word": ("[A-Z]?[a-z]+|[A-Z]+(?![a-z])", 6, (1.03, 0.17), (1.04, 0.20)),
    "number": ("[0-9]{1,3}", 3, (1.54, 0.0), (1.68, 0.0)),
    "line": (r"[ \t]*[\r\n]\s*", 0, (0.88, 0.0), (0.71, 0.0)),
    "spaces": (r"[ \t]{2,}", 0, (1.31, 0.0), (1.15, 0.0)),
    "ascii": (r"[!-/:-@\[-`{-~]+", 1, (0.65, 0.28), (0.67, 0.25)),
    "han": ("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+", 0, (0.06, 0.85), (0.0, 1.23)),
    "kana": ("[\u3040-\u30ff]+", 0, (0.30, 0.60), (0.97, 0.83)),
    "hangul": ("[\uac00-\ud7af]+", 0, (0.95, 0.33), (1.61, 0.50)),
    "greek": ("[\u0370-\u03ff]+", 0, (0.0, 0.41), (0.0, 1.06)),
    "cyrillic": ("[\u0400-\u052f]+", 0, (1.32, 0.10), (1.92, 0.18)),
    "semitic": ("[\u0590-\u06ff]+", 0, (0.14, 0.35), (1.38, 0.60)),
    "indic": ("[\u0900-\u109f]+", 0, (0.0, 0.37), (0.77, 1.03)),
    "marks": ("[\u00a0-\u00bf\u2010-\u2027\u3000-\u303f\uff00-\uffef]+", 0, (0.0, 0.66), (0.0, 0.38)),
    "other": ("[^\\x00-\\x7f]", 0, (1.83, 0.0), (2.53, 0.0)),
}
_RUNS = re.compile("|".join(f"(?P<{name}>{pattern})" for name, (pattern, *_) in _CLASSES.items()))


def estimate(text: str, encoding: str) -> int:
    """Return about as many tokens as the encoding would make of the text; 0 only for the empty text."""
    if len(text) > _MAX_CHARS:
        return round(estimate(text[:_MAX_CHARS], encoding) * len(text) / _MAX_CHARS)
    total, is_o200k = 0.0, encoding == O200K.name
    for match in _RUNS.finditer(text):
        _, free, o200k, cl100k = _CLASSES[match.lastgroup or "other"]
        run, char = o200k if is_o200k else cl100k
        total += run + char * max(0, match.end() - match.start() - free)
    return max(round(total), min(1, len(text)))
