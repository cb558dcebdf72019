"""`memory-proxy reembed` on a real data directory."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from proxy.cli.database import BATCH, reembed
from proxy.domain.changes import Create
from proxy.domain.core import Hit, Memory, Scope, Search
from proxy.domain.errors import WrongModel
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sqlite import SqliteStores
from tests.support.embedder import ScriptedEmbedder

ANNA = Scope("default", "anna")


def embedder(name: str, dimension: int) -> ScriptedEmbedder:
    """An embedder of any dimension: equal texts have equal vectors."""

    def vector(text):
        made = np.random.default_rng(len(text) * 1000 + sum(map(ord, text))).normal(size=dimension)
        return (made / np.linalg.norm(made)).astype(np.float32).tobytes()

    return ScriptedEmbedder(vector, model=EmbeddingModel(name, dimension, 0.3, 0.8))


WIDE, NARROW = embedder("wide", 384), embedder("narrow", 8)


def silent(done: int, total: int) -> None:
    """Ignore the progress."""


def fact(number: int) -> Memory:
    return Memory(
        id=f"m{number}", scope=ANNA, type="semantic", content=f"Fact number {number}", source="api",
        created_at=1.0, updated_at=1.0, valid_from=1.0,
    )  # fmt: skip


async def fill(data_dir: Path, count: int, embedder: ScriptedEmbedder = WIDE) -> None:
    stores = SqliteStores(data_dir)
    await stores.open()
    await stores.memories.stamp_model(embedder.model)
    facts = [fact(n) for n in range(count)]
    vectors = await embedder.embed([f.content for f in facts])
    changes = [Create(f, v) for f, v in zip(facts, vectors, strict=True)]
    await stores.memories.apply(ANNA, changes, expect=await stores.memories.stamp(ANNA))
    await stores.close()


async def found(stores: SqliteStores, embedder: ScriptedEmbedder, text: str) -> Sequence[Hit]:
    (vector,) = await embedder.embed([text])
    return await stores.memories.search(ANNA, Search(vector, (), limit=1, now=2.0))


async def test_all_memories_are_found_with_the_new_model_and_progress_is_reported(tmp_path):
    await fill(tmp_path, 2 * BATCH + 7)
    stores, reported = SqliteStores(tmp_path), list[tuple[int, int]]()
    await stores.open()
    count = await reembed(stores.vectors, NARROW, lambda done, total: reported.append((done, total)))
    await stores.memories.stamp_model(NARROW.model)
    (hit,) = await found(stores, NARROW, "Fact number 300")
    await stores.close()
    assert count == 2 * BATCH + 7
    assert reported == [(done, count) for done in (0, BATCH, 2 * BATCH, count)]
    assert hit.memory.id == "m300"
    assert hit.cosine == pytest.approx(1.0, abs=1e-5)


KILLED = """
import asyncio, sys, time
from pathlib import Path
from tests.cli.test_vectors import NARROW, reembed, SqliteStores

def progress(done, total):
    print(done, total, flush=True)
    time.sleep(0.1)

async def main():
    stores = SqliteStores(Path(sys.argv[1]))
    await stores.open()
    await reembed(stores.vectors, NARROW, progress)

asyncio.run(main())
"""


async def test_a_killed_run_is_resumed(tmp_path):
    size = 5 * BATCH
    await fill(tmp_path, size)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KILLED,
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    done = 0
    async with asyncio.timeout(60):
        while done < 2 * BATCH:
            line = (await process.stdout.readline()).split()
            done = int(line[0]) if line[:1] and line[0].isdigit() else done
        process.send_signal(signal.SIGKILL)
        await process.wait()
    stores = SqliteStores(tmp_path)
    await stores.open()
    with pytest.raises(WrongModel, match="memory-proxy reembed"):
        await stores.memories.stamp_model(WIDE.model)
    await stores.memories.stamp_model(NARROW.model)
    left = await reembed(stores.vectors, NARROW, silent)
    (hit,) = await found(stores, NARROW, f"Fact number {size - 1}")
    await stores.close()
    assert 0 < left <= size - done
    assert hit.memory.id == f"m{size - 1}"


# ---------------------------------------------------------------- the command
@pytest.fixture
def run(command):
    return partial(command, "reembed")
