"""What is known about embedding models: one row each. Thresholds are cosines and belong to a model."""

from dataclasses import dataclass, replace

from proxy.domain.ports import EmbeddingModel

# Our encoder: its name, which is the stamp of stores, and the checksum of its layers.
VERSION = ("memory-e5-small-v2", "a96c84c35c8ee37350fc31df1e9cc6ec60c4f25020fbff1dade1c60318841848")
OURS = VERSION[0]
PROMPTS = ("query: ", "passage: ")  # before a question or message, and before a memory


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a model wants to read before a question, and before what may answer it."""

    query: str = ""
    passage: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Models that were trained in one way. `first_token`: the vector is that of the first token, not the mean
    (where no file beside the model says so: fastembed keeps none)."""

    prompts: Prompts = Prompts()
    first_token: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A model, and the name under which fastembed offers it ("": it does not)."""

    model: EmbeddingModel
    fastembed_name: str
    family: Family = Family()


_RETRIEVE = Prompts("Represent this sentence for searching relevant passages: ")
# By what a name begins with; the first that fits. As their makers' model cards say.
_FAMILIES = {
    "multilingual-e5-large-instruct": Family(),  # asks with an instruction of one's own
    "multilingual-e5-": Family(Prompts("query: ", "passage: ")),
    "e5-": Family(Prompts("query: ", "passage: ")),
    "bge-m3": Family(first_token=True),
    "bge-small-zh": Family(Prompts("为这个句子生成表示以用于检索相关文章："), first_token=True),
    "bge-base-zh": Family(Prompts("为这个句子生成表示以用于检索相关文章："), first_token=True),
    "bge-large-zh": Family(Prompts("为这个句子生成表示以用于检索相关文章："), first_token=True),
    "bge-": Family(_RETRIEVE, first_token=True),
    "snowflake-arctic-embed-l-v2": Family(Prompts("query: "), first_token=True),
    "snowflake-arctic-embed-m-v2": Family(Prompts("query: "), first_token=True),
    "snowflake-arctic-embed": Family(_RETRIEVE, first_token=True),
    "mxbai-embed-": Family(_RETRIEVE, first_token=True),
    "nomic-embed-text": Family(Prompts("search_query: ", "search_document: ")),
}

ROWS = {
    row.model.name: row
    for row in (
        Row(EmbeddingModel(OURS, 384, 0.35, 0.30, dense_weight=0.85), "", Family(Prompts(*PROMPTS))),
        Row(
            EmbeddingModel("all-MiniLM-L6-v2", 384, 0.25, 0.0, dense_weight=0.75),
            "sentence-transformers/all-MiniLM-L6-v2",
        ),
        Row(
            EmbeddingModel("paraphrase-multilingual-MiniLM-L12-v2", 384, 0.30, 0.0),
            "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        ),
    )
}

# For a model without a row: cautious, since a wrong memory injected costs more than a missed one.
_UNMEASURED = EmbeddingModel("", 0, 0.35, 0.0)


def short_name(name: str) -> str:
    """Return the name without the organisation: `sentence-transformers/x` and `x` are one model."""
    return name.rsplit("/", 1)[-1]


def row_of(name: str) -> Row:
    """Return the model's row; for a model without one, a row of its family with cautious thresholds and
    dimension 0."""
    short = short_name(name)
    if short in ROWS:
        return ROWS[short]
    families = (family for start, family in _FAMILIES.items() if short.lower().startswith(start))
    return Row(replace(_UNMEASURED, name=short), name, next(families, Family()))
