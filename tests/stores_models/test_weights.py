"""Packing: what the graph points at is what the packer writes, and a bad file never survives a start."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from proxy.errors import EmbeddingFailed
from proxy.stores.models import weights


def test_the_committed_graph_points_at_exactly_what_the_packer_writes(weights_dir: Path) -> None:
    graph = weights.MINILM.graph.read_bytes()
    placed = list(weights.place(weights.minilm(weights_dir / weights.SOURCE_NAME)))
    # An external_data entry is a key and a value, each with its length before it.
    for key, written in (
        ("offset", [tensor.offset for tensor in placed]),
        ("length", [tensor.array.nbytes for tensor in placed]),
    ):
        entries = re.findall(rb"\n.%s\x12(.)(\d+)" % key.encode(), graph, re.DOTALL)
        assert [int(digits[: size[0]]) for size, digits in entries] == written


def test_the_graph_holds_no_weights() -> None:
    assert weights.MINILM.graph.stat().st_size < 20_000


def test_quantised_matrices_leave_the_eighth_bit_free(weights_dir: Path) -> None:
    matrices = [
        t
        for t in weights.place(weights.minilm(weights_dir / weights.SOURCE_NAME))
        if t.array.dtype == np.int8
    ]
    peaks = {tensor.name: int(np.abs(tensor.array).max()) for tensor in matrices}
    assert peaks.pop("word") == 127
    assert set(peaks.values()) == {63}


def _truncate(content: bytes) -> bytes:
    return content[:-1]


def _flip_a_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def _age(content: bytes) -> bytes:
    return b"MPMINI00" + content[8:]


@pytest.mark.parametrize("damage", [_truncate, _flip_a_bit, _age, lambda content: b""])
def test_a_damaged_or_older_packed_file_is_packed_again(
    damage: Callable[[bytes], bytes], weights_dir: Path, models_dir: Path, tmp_path: Path
) -> None:
    good = (models_dir / weights.MINILM.packed_name).read_bytes()
    target = tmp_path / weights.MINILM.packed_name
    target.write_bytes(damage(good))
    assert not weights.is_whole(target)
    weights.ensure_packed(weights_dir / weights.SOURCE_NAME, target)
    assert target.read_bytes() == good


def test_a_whole_packed_file_needs_no_source(models_dir: Path, tmp_path: Path) -> None:
    packed = models_dir / weights.MINILM.packed_name
    assert weights.ensure_packed(tmp_path / "absent", packed) == packed


def test_packing_at_the_same_time_gives_one_whole_file(weights_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / weights.MINILM.packed_name
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: weights.ensure_packed(weights_dir / weights.SOURCE_NAME, target), range(3)))
    assert weights.is_whole(target)
    assert list(target.parent.iterdir()) == [target]


def test_weights_that_are_not_the_published_ones_are_refused(tmp_path: Path) -> None:
    source, target = tmp_path / weights.SOURCE_NAME, tmp_path / weights.MINILM.packed_name
    source.write_bytes(b"something else")
    with pytest.raises(EmbeddingFailed, match="not the published"):
        weights.ensure_packed(source, target)
    assert not target.exists()


def test_a_failed_pack_leaves_nothing_behind(
    weights_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", disk_full)
    target = tmp_path / weights.MINILM.packed_name
    with pytest.raises(EmbeddingFailed, match="No space left"):
        weights.ensure_packed(weights_dir / weights.SOURCE_NAME, target)
    assert list(tmp_path.iterdir()) == []
