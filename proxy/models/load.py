"""Find an embedding model on this machine: the first source that works, and why the others do not.

Sources, in order: a directory that the operator names, our own encoder on the files of scripts/fetch-models,
and fastembed with what it has cached, or with its own download if the operator allowed that. Nothing else
uses the network: hubs are slow to fail, and start-up must not wait for one.

Known models are rows of a table. Thresholds are cosines and belong to a model.
"""

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import EmbeddingModel
from proxy.models import vocabulary, weights
from proxy.models.embedder import MAX_TOKENS, Encoder, HubTokenizer, OnnxEmbedder, Prompts
from proxy.models.weights import ENCODER_NAME, Array

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, OrtValue
    from tokenizers import Tokenizer


# ---------------------------------------------------------------- known models
@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Models that were trained in one way. `first_token`: the vector is that of the first token, not the
    mean; used if no file next to the model says so, as with fastembed."""

    prompts: Prompts = Prompts()  # noqa: RUF009 frozen
    first_token: bool = False


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model, and its name in fastembed ("": fastembed does not offer it)."""

    model: EmbeddingModel
    fastembed_name: str
    family: ModelFamily = ModelFamily()


_E5 = ModelFamily(Prompts("query: ", "passage: "))
_RETRIEVE = Prompts("Represent this sentence for searching relevant passages: ")
_CHINESE = ModelFamily(Prompts("为这个句子生成表示以用于检索相关文章："), first_token=True)
# By the beginning of the name, the first match, from the model cards.
_FAMILIES = {
    "multilingual-e5-large-instruct": ModelFamily(),  # asks with an instruction of one's own
    **dict.fromkeys(("multilingual-e5-", "e5-"), _E5),
    "bge-m3": ModelFamily(first_token=True),
    **dict.fromkeys(("bge-small-zh", "bge-base-zh", "bge-large-zh"), _CHINESE),
    "bge-": ModelFamily(_RETRIEVE, first_token=True),
    "snowflake-arctic-embed-l-v2": ModelFamily(Prompts("query: "), first_token=True),
    "snowflake-arctic-embed-m-v2": ModelFamily(Prompts("query: "), first_token=True),
    "snowflake-arctic-embed": ModelFamily(_RETRIEVE, first_token=True),
    "mxbai-embed-": ModelFamily(_RETRIEVE, first_token=True),
    "nomic-embed-text": ModelFamily(Prompts("search_query: ", "search_document: ")),
}

KNOWN_MODELS = {
    row.model.name: row
    for row in (
        KnownModel(EmbeddingModel(ENCODER_NAME, 384, 0.35, 0.30, dense_weight=0.85), "", _E5),
        KnownModel(
            EmbeddingModel("all-MiniLM-L6-v2", 384, 0.25, 0.0, dense_weight=0.75),
            "sentence-transformers/all-MiniLM-L6-v2",
        ),
        KnownModel(
            EmbeddingModel("paraphrase-multilingual-MiniLM-L12-v2", 384, 0.30, 0.0),
            "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        ),
    )
}

# For a model without a row: cautious, since injecting a wrong memory costs more than missing one.
_UNMEASURED = EmbeddingModel("", 0, 0.35, 0.0)


def short_name(name: str) -> str:
    """Return the name without the organisation: `sentence-transformers/x` and `x` are one model."""
    return name.rsplit("/", 1)[-1]


def row_of(name: str) -> KnownModel:
    """Return the model's row; for a model without one, a row of its family with cautious thresholds and
    dimension 0."""
    short = short_name(name)
    if short in KNOWN_MODELS:
        return KNOWN_MODELS[short]
    families = (family for start, family in _FAMILIES.items() if short.lower().startswith(start))
    return KnownModel(replace(_UNMEASURED, name=short), name, next(families, ModelFamily()))


# ---------------------------------------------------------------- loading
ONNX_NAMES = ("model.onnx", "onnx/model.onnx", "model_optimized.onnx")


@dataclass(frozen=True, slots=True)
class LoadedEmbedder:
    """`embedder` is None if no source works; `notes` says why each source that was tried does not."""

    embedder: OnnxEmbedder | None
    source: str  # "directory" | "installer" | "fastembed" | "none"
    notes: tuple[str, ...] = ()


def load_embedder(
    models_dir: Path,
    *,
    model: str = ENCODER_NAME,
    path: Path | None = None,
    allow_download: bool = False,
    threshold: float | None = None,
    threads: int = 2,
    cache_size: int = 1024,
) -> LoadedEmbedder:
    """Return the embedder of the first source that works. A missing model is not an error.

    Blocks: 0.4 s, or as long as an allowed download takes. `path`: a directory of an ONNX sentence model,
    or for our own of the files of scripts/fetch-models. `models_dir`: for fastembed's files. `threshold`:
    the operator's similarity threshold, instead of the model's.
    """
    row = row_of(model)

    def by_installer() -> Encoder:
        if row.model.name != ENCODER_NAME:
            raise EmbeddingFailed(f"holds only {ENCODER_NAME}")
        return our_encoder(fetched_dir())

    def by_fastembed() -> Encoder:
        if not row.fastembed_name:
            raise EmbeddingFailed(f"does not offer {row.model.name}")
        found = fetched_by_fastembed("fastembed", fetch, models_dir, download=allow_download)
        return _from_directory(found, row)

    def fetch(fastembed: Any, options: dict[str, Any]) -> Path:
        return Path(fastembed.TextEmbedding(row.fastembed_name, **options).model._model_dir)

    sources: dict[str, Callable[[], Encoder]] = {"installer": by_installer, "fastembed": by_fastembed}
    if path is not None:
        sources = {"directory": lambda: _from_directory(path, row), **sources}
    notes = [] if row.model.name in KNOWN_MODELS else [f"thresholds were never measured for {row.model.name}"]
    for source, open_source in sources.items():
        try:
            encoder = open_source()
            dimension = encoder.encode(["ready"])[0].size  # one run, which also warms the session up
            if row.model.dimension not in (0, dimension):
                known = f"{row.model.name} has {row.model.dimension} dimensions"
                raise EmbeddingFailed(f"{known}, this has {dimension}")
        except EmbeddingFailed as e:
            notes.append(f"{source}: {e}")
            continue
        found = replace(row.model, dimension=dimension)
        if threshold is not None:
            found = replace(found, similarity_threshold=threshold)
        prompts = row.family.prompts
        embedder = OnnxEmbedder(encoder, found, prompts=prompts, threads=threads, cache_size=cache_size)
        return LoadedEmbedder(embedder, source, tuple(notes))
    return LoadedEmbedder(None, "none", tuple(notes))


def _from_directory(path: Path, row: KnownModel) -> Encoder:
    if not path.is_dir():
        raise EmbeddingFailed(f"{path} is not a directory")
    if row.model.name == ENCODER_NAME:
        return our_encoder(path)
    for name in ONNX_NAMES:
        if (path / name).is_file():
            pooling = _read_json(path / "1_Pooling/config.json")
            first_token = bool(pooling.get("pooling_mode_cls_token", row.family.first_token))
            tokenizer = HubTokenizer(read_tokenizer(path))
            return Encoder(onnx_session(path / name), tokenizer, first_token=first_token)
    raise EmbeddingFailed(f"{path} holds no {ONNX_NAMES[0]}")


def fetched_dir() -> Path:
    """Return the directory of the word embeddings and the vocabulary (scripts/fetch-models), inside our
    Python environment."""
    return Path(sys.prefix, "share", "memory-proxy", "multilingual-e5-small")


def our_encoder(directory: Path) -> Encoder:
    """Return our encoder on the files of `directory`. Raises EmbeddingFailed."""
    # onnxruntime maps external weights of one directory only, so ours are packed next to the published ones.
    words = directory / vocabulary.WORDS_NAME
    if not weights.is_whole(words):
        what = "damaged" if words.is_file() else "missing"
        raise EmbeddingFailed(f"{words.name} in {directory} is {what}: run scripts/install")
    tokenizer = vocabulary.read(directory)
    weights.pack_layers(directory)
    session = onnx_session(weights.GRAPH, weights_dir=directory)
    return Encoder(session, tokenizer, directory=directory)


def fetched_by_fastembed(
    module: str, fetch: Callable[[Any, dict[str, Any]], Path], models_dir: Path, *, download: bool
) -> Path:
    """Return what `fetch` finds with the module of fastembed and the options of its models: in fastembed's
    cache, else by a download if that is allowed. Without a network a download fails after about 40 s.
    Raises EmbeddingFailed."""
    if importlib.util.find_spec("fastembed") is None:
        raise EmbeddingFailed("fastembed is not installed: run scripts/install download")
    # lazy_load: only the files are needed, sessions are made here
    options = {"cache_dir": str(models_dir / "fastembed"), "lazy_load": True}
    try:  # imported by name: it is an optional package, and slow to import
        return fetch(importlib.import_module(module), options | {"local_files_only": True})
    except Exception as e:  # its hub client raises the errors of its HTTP library
        if not download:
            why = "not in fastembed's cache; downloads are not allowed (embedding.allow_download)"
            raise EmbeddingFailed(why) from e
    try:
        return fetch(importlib.import_module(module), options | {"local_files_only": False})
    except Exception as e:
        raise EmbeddingFailed("the download failed") from e


def onnx_session(graph: Path, weights_dir: Path | None = None, *, packed: bool = True) -> "InferenceSession":
    """Return a session with one thread. `weights_dir`: the directory of the graph's external weights.
    `packed`: with copies of them in the order in which they are read, a sixth faster; else they stay
    mapped. Raises EmbeddingFailed."""
    try:
        import onnxruntime
    except ImportError as e:
        raise EmbeddingFailed("onnxruntime cannot be imported") from e
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, so they need not be printed, too
    options.enable_mem_pattern = False  # every text has another shape: patterns would only accumulate
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model: str | bytes = str(graph)
    if weights_dir is not None:
        options.add_session_config_entry("session.disable_prepacking", "0" if packed else "1")
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(weights_dir)
        )
        model = graph.read_bytes()
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as e:  # onnxruntime's errors have no base class of their own
        raise EmbeddingFailed(f"{graph.name} cannot be loaded: {str(e)[:200]}") from e


def ort_values(arrays: Mapping[str, Array]) -> "dict[str, OrtValue]":
    """Return the arrays as a session's inputs, which it reads without a copy."""
    from onnxruntime import OrtValue

    make = OrtValue.ortvalue_from_numpy
    return {name: make(np.ascontiguousarray(array)) for name, array in arrays.items()}


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
    """Return the object in the file, {} if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
