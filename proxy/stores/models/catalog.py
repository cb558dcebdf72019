"""What is known about embedding models: one row each. Thresholds are cosines and belong to a model."""

from dataclasses import dataclass, replace

from proxy.ports import EmbeddingModel

MINILM = "all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class Row:
    """A model, the name under which fastembed offers it, and which writing it can read."""

    model: EmbeddingModel
    fastembed_name: str
    english_only: bool


ROWS = {
    row.model.name: row
    for row in (
        Row(EmbeddingModel(MINILM, 384, 0.25, 0.80), f"sentence-transformers/{MINILM}", english_only=True),
        Row(
            EmbeddingModel("paraphrase-multilingual-MiniLM-L12-v2", 384, 0.30, 0.85),
            "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
            english_only=False,
        ),
    )
}

# For a model without a row: cautious, since a wrong memory injected or merged costs more than a missed one.
_UNMEASURED = EmbeddingModel("", 0, 0.35, 0.90)


def short_name(name: str) -> str:
    """Return the name without the organisation: `sentence-transformers/x` and `x` are one model."""
    return name.rsplit("/", 1)[-1]


def row_of(name: str) -> Row:
    """Return the model's row; for a model without one, a row of cautious thresholds and dimension 0."""
    unmeasured = Row(replace(_UNMEASURED, name=short_name(name)), name, english_only=False)
    return ROWS.get(short_name(name), unmeasured)
