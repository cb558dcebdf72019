"""Encode a question so that it comes near to the memories that answer it: all-MiniLM-L6-v2 with low-rank
changes, for questions alone.

The published model puts near each other what is about the same things. "Anything I can't eat?" is about none
of the things of "User is allergic to walnuts". What was trained (`minilm-question.npz`, written by
`scripts/dev/train_question.py`) moves questions, and only them: memories keep the vectors of the published
model, so that nothing that is stored has to be embedded anew.
"""

from collections.abc import Iterator
from pathlib import Path

from proxy.stores.models import weights
from proxy.stores.models.lowrank import changed, read_trained, tag_of

TRAINED = Path(__file__).with_name("minilm-question.npz")
LAYERS = 6


def pack_question(directory: Path, into: Path) -> Path:
    """Return the packed file of the changed weights, made of the published ones in `directory`; one of other
    trained values is packed again. Raises EmbeddingFailed."""
    target = into / weights.QUESTION.packed_name
    return weights.ensure_packed(directory / weights.SOURCE_NAME, target, tensors, tag=tag_of(TRAINED))


def tensors(source: Path) -> Iterator[tuple[str, weights.Array]]:
    """Yield (name, array) of what it does not share with the embedder of memories."""
    get = changed(weights.read_safetensors(source), read_trained(TRAINED))
    yield from weights.norm_in(get)
    yield from weights.transformer(get, LAYERS)
