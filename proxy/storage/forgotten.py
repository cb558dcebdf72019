"""Counts of what a forget has erased, for its receipt: the same in every store."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, fields

from proxy.domain.core import Forgotten

_NAMES = frozenset(each.name for each in fields(Forgotten)) - {"receipt"}


def new_receipt_id() -> str:
    """Return an id that no receipt has."""
    return f"rcpt_{secrets.token_hex(12)}"


def plus(one: Forgotten, other: Forgotten) -> Forgotten:
    """Return the sum; the receipt is the first that there is."""
    first, second = asdict(one), asdict(other)
    added = {name: first[name] + second[name] for name in _NAMES}
    return Forgotten(**added, receipt=one.receipt or other.receipt)


def numbers(counts: Forgotten) -> dict[str, int]:
    """Return the counts alone, as they are written down: without zeros, of which an older version might not
    know the names."""
    return {name: count for name, count in asdict(counts).items() if name in _NAMES and count}


def counts_of(row: Mapping[str, int], receipt: str | None = None) -> Forgotten:
    """Return what `numbers` made, as far as this version knows their names. Raises TypeError, ValueError for
    anything else."""
    return Forgotten(**{name: count for name, count in dict(row).items() if name in _NAMES}, receipt=receipt)
