"""What every store means by a forget, a receipt and a generation, said once."""

from dataclasses import fields

import pytest

from proxy.domain.core import ForgetCounts
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sql.embeddings import made_with_another
from proxy.storage.sql.erasure import add_counts, counts_as_dict, counts_from_dict
from proxy.storage.sql.forget_plan import ForgetTarget


def test_every_count_of_a_receipt_is_added() -> None:
    names = [f.name for f in fields(ForgetCounts) if f.name != "receipt"]
    one = ForgetCounts(**{name: n for n, name in enumerate(names, 1)}, receipt=None)
    other = ForgetCounts(**dict.fromkeys(names, 100), receipt="rcpt_1")
    total = add_counts(one, other)
    assert counts_as_dict(total) == {name: 100 + n for n, name in enumerate(names, 1)}
    assert (total.receipt, add_counts(total, one).receipt) == ("rcpt_1", "rcpt_1")


def test_receipts_of_another_version_can_be_read() -> None:
    assert counts_as_dict(ForgetCounts(memories=2)) == {
        "memories": 2
    }  # an older one may not know the others' names
    assert counts_from_dict({"memories": 2, "dreams": 7}, "rcpt_1") == ForgetCounts(
        memories=2, receipt="rcpt_1"
    )
    for damaged in (7, "memories", [1]):
        with pytest.raises((TypeError, ValueError)):
            counts_from_dict(damaged)  # type: ignore[arg-type]


def test_a_type_stands_for_its_children_and_its_absence_for_all() -> None:
    types = ForgetTarget(owner=1, type="semantic").types
    assert types is not None
    assert "semantic" in types
    assert ForgetTarget(owner=1).types is None


def test_a_wrong_model_is_told_with_its_remedy() -> None:
    model = EmbeddingModel("new", 8, similarity_threshold=0.2, related_threshold=0.3)
    told = str(made_with_another("old", 4, model))
    assert "old (4 dimensions)" in told
    assert "`memory-proxy reembed`" in told
