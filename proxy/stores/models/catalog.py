"""What is known about embedding models: one row each. Thresholds are cosines and belong to a model."""

from dataclasses import dataclass, replace

from proxy.ports import EmbeddingModel

MINILM = "all-MiniLM-L6-v2"
E5 = "multilingual-e5-small"
MEMORY_E5 = "memory-e5-small-v1"  # our own, see memory_e5.py


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
class Likeness:
    """The cosines by which a model is known: of the first and second of these texts, the first and third, the
    second and third."""

    texts: tuple[str, str, str]
    cosines: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """A model, the name under which fastembed offers it ("": it does not), and which writing it can read.
    `centred`: where its vectors lie around is looked for (centre.py). `likeness`: where more than thresholds
    hangs on its being this very model."""

    model: EmbeddingModel
    fastembed_name: str
    english_only: bool
    centred: bool = True
    family: Family = Family()
    likeness: Likeness | None = None


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
        Row(
            EmbeddingModel(MINILM, 384, 0.25, 0.80, dense_weight=0.75),
            f"sentence-transformers/{MINILM}",
            english_only=True,
            centred=False,
            likeness=Likeness(
                (
                    "My sister's flight to Lisbon leaves at seven.",
                    "When does she land in Portugal?",
                    "The soup needs more salt.",
                ),
                (0.54, 0.04, -0.01),  # .530, .028, -.018 in 8 bits, .546, .045, -.006 in 32
            ),
        ),
        Row(
            EmbeddingModel(E5, 384, 0.25, 0.80, dense_weight=0.85),
            f"intfloat/{E5}",
            english_only=False,
            family=_FAMILIES["multilingual-e5-"],
        ),
        Row(
            EmbeddingModel(MEMORY_E5, 384, 0.35, 0.80, dense_weight=0.85),
            "",
            english_only=False,
            centred=False,
            family=_FAMILIES["multilingual-e5-"],
        ),
        Row(
            EmbeddingModel("paraphrase-multilingual-MiniLM-L12-v2", 384, 0.30, 0.85),
            "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
            english_only=False,
            centred=False,
        ),
    )
}

# For a model without a row: cautious, since a wrong memory injected or merged costs more than a missed one.
_UNMEASURED = EmbeddingModel("", 0, 0.35, 0.90)


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
    return Row(replace(_UNMEASURED, name=short), name, english_only=False, family=next(families, Family()))
