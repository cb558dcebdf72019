"""Counts of receipts: summed in full, and readable across versions."""

from dataclasses import fields

import pytest

from proxy.domain.core import ForgetCounts
from proxy.storage.sql.erasure import add_counts, counts_as_dict, counts_from_dict


def test_every_count_of_a_receipt_is_added():
    names = [f.name for f in fields(ForgetCounts) if f.name != "receipt"]
    one = ForgetCounts(**{name: n for n, name in enumerate(names, 1)}, receipt=None)
    other = ForgetCounts(**dict.fromkeys(names, 100), receipt="rcpt_1")
    total = add_counts(one, other)
    assert counts_as_dict(total) == {name: 100 + n for n, name in enumerate(names, 1)}
    assert (total.receipt, add_counts(total, one).receipt) == ("rcpt_1", "rcpt_1")


def test_receipts_of_another_version_can_be_read():
    assert counts_as_dict(ForgetCounts(memories=2)) == {"memories": 2}  # an older one may not know the others
    assert counts_from_dict({"memories": 2, "dreams": 7}, "rcpt_1") == ForgetCounts(
        memories=2, receipt="rcpt_1"
    )
    for damaged in (7, "memories", [1]):
        with pytest.raises((TypeError, ValueError)):
            counts_from_dict(damaged)  # type: ignore[arg-type]
