"""What the model was shown when it gave an answer (`recalled`): the ids of memories and documents, and
whether any of them was forgotten since. An answer is itself in view of those that follow it in its session,
and may be repeated by them.
"""

from collections.abc import Iterable

DOCUMENT = "doc_"  # documents' ids begin so: no memory's do
FORGOTTEN = "(forgotten)"
"""Stands in `recalled` for what was forgotten, which nobody finds any more: an answer that is on its way
is not kept then."""


def is_not_to_be_read(recalled: Iterable[str]) -> bool:
    """True where no memory is made of the answer, nor of a later one of its session: what is in a document
    must not become one by being quoted, and a client's history may hold what was forgotten."""
    return any(each.startswith(DOCUMENT) or each == FORGOTTEN for each in recalled)
