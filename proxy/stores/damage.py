"""Rows that a dying disk has changed: the file is whole, and what one of its rows says is nonsense.

That is no state of the store, as trouble with the file is: other rows are as good as ever, and writing does
no harm.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from proxy.errors import StoreUnavailable


class DamagedRow(StoreUnavailable):
    """A row says what nobody has written."""


@contextmanager
def legible() -> Iterator[None]:
    """Raise DamagedRow, without any content, where rows cannot be made into values in here.

    For one whole read, not for each of its rows, and for nothing else: it would hide other errors."""
    try:
        yield
    except (ValueError, TypeError) as error:
        # `from None`: the original error carries what the row says.
        raise DamagedRow(f"a row is damaged ({type(error).__name__}): restore a backup") from None
