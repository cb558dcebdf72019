"""Counts of what a forget has erased, for its receipt: the same in every store."""

import secrets
from dataclasses import asdict

from proxy.domain import Forgotten


def new_receipt_id() -> str:
    """Return an id that no receipt has."""
    return f"rcpt_{secrets.token_hex(12)}"


def plus(one: Forgotten, other: Forgotten) -> Forgotten:
    """Return the sum; the receipt is the first that there is."""
    first, second = numbers(one), numbers(other)
    added = {name: number + second[name] for name, number in first.items()}
    return Forgotten(**added, receipt=one.receipt or other.receipt)


def numbers(counts: Forgotten) -> dict[str, int]:
    """Return the counts alone."""
    found = asdict(counts)
    del found["receipt"]
    return found
