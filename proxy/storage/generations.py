"""The generations of stored vectors, each of one embedding model, and what every store reports of them."""

from dataclasses import dataclass

from proxy.domain.errors import WrongModel
from proxy.domain.ports import EmbeddingModel

FIRST = 0
NO_MODEL = -1  # the generation of memories that were stored without a model at hand


@dataclass(frozen=True, slots=True)
class Held:
    """What one process may do with vectors: make those of `generation`, compare those of `generations`."""

    generation: int
    dimension: int | None  # None: no model was ever named
    generations: tuple[int, ...]


def made_with_another(name: str, dimension: int, model: EmbeddingModel) -> WrongModel:
    """Return the error of a store that holds vectors of another model than the configured one."""
    return WrongModel(
        f"the memories were embedded with {name} ({dimension} dimensions), the configured model is"
        f" {model.name} ({model.dimension}): run `memory-proxy reembed` with the configuration that you"
        " serve with (it can be broken off and goes on where it was), or set embedding.model back"
    )


def unknown_to(newest: str, name: str) -> WrongModel:
    """Return the error of a store whose model was replaced under the process."""
    return WrongModel(f"the store holds vectors of {newest}, not of {name}")
