"""Packing: a bad file never survives a start."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from proxy.domain.errors import EmbeddingFailed
from proxy.models import weights
from proxy.models.weights import Array

TAG = b"version1"


def named() -> Iterator[tuple[str, Array]]:
    yield "matrix", np.arange(100_000, dtype=np.int8)
    yield "vector", np.ones(5, np.float32)


def never() -> Iterator[tuple[str, Array]]:
    raise AssertionError("it is whole")


def _truncate(content: bytes) -> bytes:
    return content[:-1]


def _flip_a_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def _age(content: bytes) -> bytes:
    return b"version0" + content[8:]


@pytest.mark.parametrize("damage", [_truncate, _flip_a_bit, _age, lambda content: b""])
def test_a_damaged_or_older_packed_file_is_packed_again(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    target = weights.ensure(tmp_path / "packed", TAG, named)
    good = target.read_bytes()
    target.write_bytes(damage(good))
    assert not weights.is_whole(target, TAG)
    weights.ensure(target, TAG, named)
    assert target.read_bytes() == good
    weights.ensure(target, TAG, never)


def test_packing_at_the_same_time_gives_one_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "new" / "packed"
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: weights.ensure(target, TAG, named), range(3)))
    assert weights.is_whole(target, TAG)
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_pack_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", disk_full)
    with pytest.raises(EmbeddingFailed, match="No space left"):
        weights.ensure(tmp_path / "packed", TAG, named)
    assert list(tmp_path.iterdir()) == []
