"""What was forgotten since a backup is forgotten in a database that PostgreSQL's own tools restored."""

import asyncio
import json
import subprocess

from proxy.cli.main import main
from proxy.storage.postgres import PostgresStores
from tests import postgres_server
from tests.storage.conftest import rows_in
from tests.storage.making import ANNA, BEN, create, find, of, store
from tests.storage.talking import talk


def run(program: str, *argv: str) -> None:
    assert postgres_server.PROGRAMS is not None
    subprocess.run([str(postgres_server.PROGRAMS / program), *argv], check=True)


async def test_a_restored_dump_forgets_what_was_forgotten_since(
    server, url, stores, tmp_path, monkeypatch, capsys
):
    for scope in (ANNA, BEN):
        await store(stores.memories, create("lives in Porto", scope, id="city"), scope=scope)
        await store(stores.memories, create("drinks tea", scope, id="drink"), scope=scope)
    await talk(stores.sessions, "Porto is where I live", session="s1", scope=ANNA)
    await stores.memories.forget(of(BEN), "drink", by="test")
    dump, saved = str(tmp_path / "dump"), str(tmp_path / "receipts")
    run("pg_dump", "--format=custom", f"--file={dump}", url)
    await stores.memories.forget(of(ANNA), "city", by="test")
    await stores.memories.forget(of(BEN), None, by="test")
    await store(stores.memories, create("likes rum", ANNA, id="new"))
    await stores.memories.forget(of(ANNA), "new", by="test")

    monkeypatch.setenv("MEMORY_PROXY__STORAGE__BACKEND", "postgres")
    monkeypatch.setenv("MEMORY_PROXY__STORAGE__POSTGRES_URL", url)
    assert await asyncio.to_thread(main, ["receipts", saved]) == 0
    restored = server.new_database()
    run("pg_restore", "--no-owner", f"--dbname={restored}", dump)
    assert b"Porto" in rows_in(restored)
    monkeypatch.setenv("MEMORY_PROXY__STORAGE__POSTGRES_URL", restored)
    capsys.readouterr()
    for repeated, unknown in ((3, 1), (0, 0)):  # the second run finds nothing to do
        assert await asyncio.to_thread(main, ["receipts", "--repeat", saved, "--json"]) == 0
        done = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (done["receipts"], done["unknown"]) == (repeated, unknown)
    assert b"Porto" not in rows_in(restored)
    again = PostgresStores(restored, connections=2)
    await again.open()
    assert [hit.memory.id for hit in await find(again.memories, "tea", ANNA)] == ["drink"]
    assert not await find(again.memories, "tea", BEN)
    receipts = await again.receipts.list(ANNA.tenant, None, limit=9)
    assert len(receipts) == 4
    await again.close()
    server.drop(restored)
