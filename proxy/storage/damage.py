"""Single rows that a failing disk has damaged: the file is readable, but the content of a row makes no sense.

Unlike trouble with the file (trouble.py) this does not change the state of the store: other rows are as
good as ever, and writing does no harm.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from proxy.domain.errors import DamagedRow as DamagedRow


@contextmanager
def legible() -> Iterator[None]:
    """Raise DamagedRow, without any content, where rows cannot be made into values in here.

    For one whole read, not for each of its rows, and for nothing else: it would hide other errors."""
    try:
        yield
    except (ValueError, TypeError) as error:
        # `from None`: the original error carries what the row says.
        raise DamagedRow(f"a row is damaged ({type(error).__name__}): restore a backup") from None
