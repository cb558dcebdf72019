"""The target of a forget, in the form that every store shares: memories, and what else holds their text."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from proxy.domain.core import with_children


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Memories of one user. What the fields leave open is not asked for."""

    project: str | None = None
    type: str | None = None
    text: str | None = None
    memory_id: str | None = None
    document_id: str | None = None  # no memory, but this document
    only: Collection[str] | Collection[int] | None = None  # of the memories, just these

    @property
    def is_scope(self) -> bool:
        """True if it covers all that was said, too: a user's, or a project's."""
        return self.type is None and self.text is None and self.is_of_many

    @property
    def is_everything(self) -> bool:
        """True if nothing of the user is to be left."""
        return self.is_scope and self.project is None

    @property
    def is_of_many(self) -> bool:
        """True if it covers all memories of a kind, and not single things that are named."""
        return self.memory_id is None and self.document_id is None and self.only is None

    @property
    def types(self) -> frozenset[str] | None:
        """The types that the one named stands for, None for all."""
        return None if self.type is None else _with_children(self.type)


@cache
def _with_children(type_: str) -> frozenset[str]:
    return with_children((type_,)) | {type_}
