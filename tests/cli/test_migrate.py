"""`memory-proxy migrate …` as an operator uses it: a real data directory, a real Redis."""

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from qdrant_client import AsyncQdrantClient
from redis.asyncio import Redis as Client

from proxy.cli import migrate as migrate_cli
from proxy.config import PREFIX
from proxy.domain.core import Scope
from proxy.domain.documents import Limits, NewDocument, Passage
from proxy.domain.ports import EmbeddingModel
from proxy.storage import migrate
from proxy.storage.migrate import moving
from proxy.storage.redis.connection import Redis, pairs
from proxy.storage.redis.stores import Places, RedisStores
from proxy.storage.redis.unit import Unit, Units, key_of
from proxy.storage.sqlite import SqliteStores
from tests import redis_server
from tests.migrate_support import (
    ANNA,
    BEN,
    MODEL,
    OTHER,
    USERS,
    aged,
    fill,
    forgets,
    heard,
    opened,
    said_again,
    seen,
    without_receipts,
    worked_off,
)
from tests.storage.contract_keys import key
from tests.storage.making import NOW, create, find, of, store, talk, vector
from tests.storage.on_redis.documents_support import library_agreement
from tests.storage.on_redis.memories_support import agreement, local_index, replica
from tests.storage.on_redis.shared_support import by_rows, shared

ROOT = Path(__file__).parents[2]
NAMES = {name for name in os.environ if name.startswith(("MEMORY_PROXY", PREFIX))}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.Server]:
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with redis_server.running(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
async def old(tmp_path: Path) -> Path:
    """A data directory with a row of every kind."""
    directory = tmp_path / "old"
    await fill(directory)
    return directory


@pytest.fixture
async def config(server: redis_server.Server, tmp_path: Path) -> Path:
    """The configuration of a fleet that has nothing yet."""
    async with Client.from_url(server.url) as client:
        await client.flushdb()
    path = tmp_path / "cluster.yaml"
    write_config(path, server)
    return path


def write_config(path: Path, server: redis_server.Server) -> None:
    path.write_text(f"storage: {{backend: redis}}\nredis: {{url: '{server.url}', prefix: 't:'}}\n", "utf-8")


@pytest.fixture
def run(config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run the command; returns exit status, standard output, standard error."""
    for name in NAMES:
        monkeypatch.delenv(name)
    parser = argparse.ArgumentParser()
    migrate_cli.add_migrate(parser.add_subparsers().add_parser("migrate"))

    async def run(directory: Path, *argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        args = parser.parse_args(
            ["migrate", "--config", str(config), "--data-dir", str(directory), *argv]
        )  # fmt: skip
        status = await migrate_cli._run(args)
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


@asynccontextmanager
async def fleet(server: redis_server.Server) -> AsyncIterator[RedisStores]:
    """A replica's stores."""
    stores = RedisStores(Places(redis_url=server.url, prefix="t:"))
    await stores.open()
    await stores.memories.stamp_model(MODEL)
    try:
        yield stores
    finally:
        await stores.close()


async def written(redis: Redis) -> dict[str, object]:
    """Return what is in Redis, user by user as far as it does not change with each step."""
    users = pairs(await redis.call("HGETALL", redis.key("users")))
    found: dict[str, object] = {"users": users, "shared": await shared(redis)}
    for user in users:
        for table in sorted(await redis.call("SMEMBERS", key_of(redis, user, "tables"))):
            if table not in (b"obsolete", b"weakest"):  # the one changes by itself, the other is no hash
                found[f"{user} {table}"] = await redis.hash(key_of(redis, user, table.decode()))
    return found


# ---------------------------------------------------------------- everything is there
async def test_the_fleet_answers_everything_as_the_directory_did(old, run, server) -> None:
    status, out, err = await run(old)
    assert (status, err) == (0, "")
    assert "3 users moved; 2 API keys." in out
    assert "The two sides agree." in out
    before = await opened(old)
    async with fleet(server) as stores:
        assert await seen(stores) == await seen(before)
        assert await heard(stores) == await heard(before)
        assert await worked_off(stores) == await worked_off(before)
        assert await said_again(stores) == await said_again(before)
        assert await seen(stores) == await seen(before)
    await before.close()


async def test_what_is_old_goes_from_the_fleet_as_it_would_from_the_directory(old, run, server) -> None:
    await run(old)
    before = await opened(old)
    async with fleet(server) as stores:
        assert await aged(stores) == await aged(before)
        assert without_receipts(await seen(stores)) == without_receipts(await seen(before))
    await before.close()


async def test_a_forget_in_the_fleet_takes_what_it_would_take_from_the_directory(old, run, server) -> None:
    await run(old)
    before = await opened(old)
    async with fleet(server) as stores:
        assert await forgets(stores) == await forgets(before)
        assert without_receipts(await seen(stores)) == without_receipts(await seen(before))
        assert await shared(stores.connection) == await by_rows(stores.connection)
    await before.close()


async def test_vectors_go_into_qdrant_where_the_fleet_has_one(old, config, server) -> None:
    redis, client = Redis(Client.from_url(server.url), prefix="t:"), AsyncQdrantClient(":memory:")
    async with migrate.opened(old) as source:
        moved = await migrate.Move(source, Units(redis), local_index(client), lambda *_: None).run()
    before, memories = await opened(old), replica(redis, client)
    for scope in USERS:
        ours, theirs = [await find(each, "", scope, vec=vector(1, 1)) for each in (memories, before.memories)]
        assert [(hit.memory, pytest.approx(hit.cosine, abs=1e-5)) for hit in ours] == [
            (hit.memory, hit.cosine) for hit in theirs
        ]
    assert not moved.differs
    assert moved.new.counts["vectors"] == 6
    await before.close()
    await redis.close()
    await client.close()


async def test_the_fleets_rows_agree_with_each_other_and_with_what_users_share(old, run, server) -> None:
    await run(old)
    async with fleet(server) as stores:
        redis = stores.connection
        assert await shared(redis) == await by_rows(redis)
        for scope in USERS:
            await agreement(redis, await Unit.begin(redis, scope))
            assert not await Units(redis).glance(scope, lambda unit: unit.table("unindexed").all())


async def test_who_was_served_and_where_instructions_were_said_is_known_in_the_fleet(
    old, run, server
) -> None:
    await run(old)
    with closing(sqlite3.connect(old / "memory.db")) as database:
        served = dict(database.execute("SELECT tenant || user, served FROM scopes"))
        said = {id_ for (id_,) in database.execute("SELECT exchange_id FROM anchors")}
    async with fleet(server) as stores:
        redis = stores.connection
        units = {scope: await Unit.begin(redis, scope) for scope in USERS}
        assert {s.tenant + s.user: unit.number("served") for s, unit in units.items()} == served
        assert int(await redis.call("GET", redis.key("served"))) == max(served.values()) > 0
        assert set(await units[ANNA].table("anchored").all()) == said != set()


async def test_what_is_stored_afterwards_comes_after_what_was_moved(old, run, server) -> None:
    await run(old)
    async with fleet(server) as stores:
        await store(stores.memories, create("the newest", id="newest", vec=vector(0, 0, 1)))
        newest = await stores.memories.list(of(ANNA), limit=1)
        await talk(stores.sessions, "one more", session="anchored")
        recent = await stores.sessions.recent(ANNA, "anchored", 9)
    assert [m.id for m in newest.items] == ["newest"]
    assert [e.said for e in recent][-2:] == ["turn 3", "one more"]


async def test_documents_go_along_and_the_fleet_goes_on_with_their_vectors(old, run, server) -> None:
    _, out, _ = await run(old, "--json")
    counts = json.loads(out)["target"]["counts"]
    assert [counts[name] for name in ("documents", "passages", "passage_vectors")] == [4, 7, 4]
    before = await opened(old)
    async with fleet(server) as stores:
        await library_agreement(stores.connection)
        assert await waiting(stores) == await waiting(before) != set()
        # What is written there gets numbers of its own.
        await stores.documents.put(await replaced(stores), Limits())
        await library_agreement(stores.connection)
    await before.close()


async def test_no_memory_is_made_of_what_follows_a_document_in_a_session_that_was_moved(
    old, run, server
) -> None:
    await run(old)
    async with fleet(server) as stores:
        await talk(stores.sessions, "and again?", "At four.", scope=BEN, session="s1")
        await stores.sessions.end(BEN, "s1", NOW + 9)
        while (job := await stores.jobs.claim(NOW + 9e9, 60)) is not None:
            found = (await stores.jobs.batch(job, limit=99, context=9)).pending
            if job.scope == BEN and found[-1].said == "and again?":
                break
            await stores.jobs.retry(job, at=NOW + 9e12, reason="not of this test")
    assert [(e.said, e.answer) for e in found[-2:]] == [("when?", ""), ("and again?", "")]


async def test_headings_that_are_no_unicode_are_moved_as_they_can_be(old, run, server) -> None:
    before = await opened(old)
    passage = Passage(headings=("A \ud800 B",), section=0, tile="figs", start=0)
    new = NewDocument(scope=BEN, name="odd", digest=b"odd", passages=(passage,), at=NOW)
    await before.documents.put(new, Limits())
    await before.close()
    assert (await run(old))[0] == 0
    async with fleet(server) as stores:
        (moved,) = await stores.documents.passages(await stores.documents.named(BEN, "odd"))
    assert moved.headings == ("A \ufffd B",)


async def waiting(stores) -> set[str]:
    """Give vectors to all passages that have none; return their texts."""
    texts: set[str] = set()
    while some := await stores.passages.pending(9):
        texts |= {one.text for one in some}
        await stores.passages.fill([(one, vector(1)) for one in some])
    return texts


async def replaced(stores) -> NewDocument:
    """The next version of a document."""
    (old, *_) = await stores.documents.list(ANNA, limit=1)
    passages = tuple(await stores.documents.passages(old))
    return NewDocument(scope=old.scope, name=old.name, digest=b"next", passages=passages, at=NOW + 9)


async def test_nothing_that_was_said_and_nobody_is_named(old, run) -> None:
    _, out, err = await run(old)
    for secret in ("anna", "ben", "tea", "acme", "obey", "sealed"):
        assert secret not in out + err


# ---------------------------------------------------------------- twice, and broken off
async def test_a_second_run_doubles_nothing(old, run, server) -> None:
    await run(old)
    redis = Redis(Client.from_url(server.url), prefix="t:")
    before = await written(redis)
    status, out, _ = await run(old)
    assert (status, await written(redis)) == (0, before)
    assert "3 users moved, 3 of them by an earlier run; 2 API keys." in out
    await redis.close()


async def test_a_key_that_is_revoked_on_either_side_stays_revoked(old, run, server) -> None:
    before = await opened(old)
    await before.keys.add(key("k3"), b"d3")
    await before.close()
    assert (await run(old))[0] == 0
    before = await opened(old)
    await before.keys.revoke("k1", NOW + 2)
    await before.close()
    async with fleet(server) as stores:
        await stores.keys.revoke("k3", NOW + 3)
    assert (await run(old))[0] == 0
    async with fleet(server) as stores:
        found = [(await stores.keys.find(digest)).revoked_at for digest in (b"d1", b"d2", b"d3")]
    assert found == [NOW + 2, NOW + 1, NOW + 3]


async def test_a_second_run_leaves_alone_what_the_fleet_has_done_since(old, run, server) -> None:
    await run(old)
    async with fleet(server) as stores:
        await stores.memories.forget(of(ANNA), "f2", by="open")
        await store(stores.memories, create("since then", id="since"))
    status, _, _ = await run(old)
    async with fleet(server) as stores:
        kept = {m.id for m in (await stores.memories.list(of(ANNA), limit=99)).items}
    assert status == 0
    assert "since" in kept
    assert "f2" not in kept


KILLED = """
import asyncio, os, sys
from proxy.cli.main import main as cli
from proxy.storage import migrate
from proxy.storage.migrate import moving
from proxy.storage.redis.unit import Units

moving._PIECES = 3
left, write = int(sys.argv[1]), Units.write

async def dying(self, scope, work):
    global left
    left -= 1
    if not left:
        print("here", flush=True)
        await asyncio.sleep(99)
    return await write(self, scope, work)

Units.write = dying
cli.main(sys.argv[2:])
"""


async def killed_at(step: int, config: Path, old: Path) -> bool:
    """Run the command until so many units are written, then kill it; False if it came to its end before."""
    command = ["migrate", "--config", str(config), "--data-dir", str(old)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(step), *command,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**{n: v for n, v in os.environ.items() if n not in NAMES}, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(60):
        reached = await process.stdout.readline() == b"here\n"
        if reached:
            process.send_signal(signal.SIGKILL)
        await process.wait()
    return reached


async def test_killed_again_and_again_it_comes_to_the_same_end(old, config, run, server) -> None:
    for step in (1, 8, 9, 15):
        assert await killed_at(step, config, old)
    status, _, _ = await run(old)
    before = await opened(old)
    async with fleet(server) as stores:
        assert status == 0
        assert await shared(stores.connection) == await by_rows(stores.connection)
        for scope in USERS:
            await agreement(stores.connection, await Unit.begin(stores.connection, scope))
        assert await seen(stores) == await seen(before)
        assert await worked_off(stores) == await worked_off(before)
    await before.close()


async def test_what_was_moved_is_the_same_in_however_many_portions(old, run, server, monkeypatch) -> None:
    monkeypatch.setattr(moving, "_PIECES", 1)
    status, _, _ = await run(old)
    before = await opened(old)
    async with fleet(server) as stores:
        assert status == 0
        assert await seen(stores) == await seen(before)
    await before.close()


async def test_a_run_broken_off_and_a_directory_that_went_on_are_no_trouble(old, config, run, server) -> None:
    assert await killed_at(6, config, old)
    before = await opened(old)
    await store(before.memories, create("meanwhile", id="meanwhile", vec=vector(0, 0, 1)))
    await before.memories.forget(of(ANNA), "f2", by="open")
    await before.close()
    status, _, _ = await run(old)
    before = await opened(old)
    async with fleet(server) as stores:
        assert status == 0
        assert await seen(stores) == await seen(before)
    await before.close()


async def test_redis_going_away_in_the_middle_costs_nothing_but_another_run(
    old, config, run, tmp_path, monkeypatch
) -> None:
    async def killing(unit: Unit, **more: object) -> None:
        await write(unit, **more)
        if unit.scope == BEN:
            mine.kill()

    write = moving._write
    with redis_server.running(tmp_path / "redis") as mine:
        write_config(config, mine)
        monkeypatch.setattr(moving, "_write", killing)
        status, _, err = await run(old)
        monkeypatch.setattr(moving, "_write", write)
        mine.start()
        assert status == 1
        assert "run it again to go on" in err
        status, out, _ = await run(old)
        assert (status, "3 users moved, 1 of them by an earlier run" in out) == (0, True)
        before = await opened(old)
        async with fleet(mine) as stores:
            assert await seen(stores) == await seen(before)
        await before.close()


# ---------------------------------------------------------------- refused
async def test_a_user_with_other_data_is_not_overwritten_and_nothing_is_moved(old, run, server) -> None:
    async with fleet(server) as stores:
        await store(stores.memories, create("already here", BEN), scope=BEN)
        before = await written(stores.connection)
    status, out, err = await run(old)
    async with fleet(server) as stores:
        assert await written(stores.connection) == before
    assert (status, out) == (1, "")
    assert "1 of 3 users have other data in the target" in err
    assert "ben" not in err


async def test_the_rest_is_moved_where_that_is_asked_for(old, run, server) -> None:
    async with fleet(server) as stores:
        await store(stores.memories, create("already here", BEN), scope=BEN)
    status, out, _ = await run(old, "--skip-others")
    async with fleet(server) as stores:
        bens = await stores.memories.list(of(BEN), limit=99)
        assert (await stores.memories.list(of(OTHER), limit=99)).items
    assert status == 0
    assert "1 users were left out" in out
    assert [m.content for m in bens.items] == ["already here"]


async def test_two_directories_that_know_the_same_user_are_not_mixed(old, run, tmp_path) -> None:
    other = tmp_path / "other"
    second = await opened(other)
    await store(second.memories, create("of another machine"))
    await second.close()
    await run(old)
    status, _, err = await run(other)
    assert status == 1
    assert "1 of 1 users have other data" in err


async def test_who_has_forgotten_everything_in_the_fleet_is_not_brought_back(old, run, server) -> None:
    await run(old)
    async with fleet(server) as stores:
        await stores.memories.forget(of(ANNA), by="open")
    status, _, err = await run(old)
    async with fleet(server) as stores:
        left = await stores.memories.list(of(ANNA, include_inactive=True), limit=9)
    assert status == 1
    assert "1 of 3 users" in err
    assert not left.items


async def test_what_was_forgotten_in_the_fleet_is_not_moved_anew(old, run, server) -> None:
    await run(old)
    async with fleet(server) as stores:
        await stores.memories.forget(of(ANNA), "f5", by="open")
    before = await opened(old)
    await store(before.memories, create("meanwhile", id="meanwhile"))
    await before.close()
    status, _, err = await run(old, "--anew")
    async with fleet(server) as stores:
        left = {m.id for m in (await stores.memories.list(of(ANNA, include_inactive=True), limit=99)).items}
    assert status == 1
    assert "1 of 3 users have other data" in err
    assert "f5" not in left


async def test_a_directory_that_went_on_after_the_move_is_moved_anew_only_where_that_is_asked_for(
    old, run, server
) -> None:
    await run(old)
    before = await opened(old)
    await before.memories.forget(of(ANNA), "f2", by="open")
    await before.close()
    status, _, err = await run(old)
    assert status == 1
    assert "1 users have changed in the directory" in err
    status, _, _ = await run(old, "--anew")
    before = await opened(old)
    async with fleet(server) as stores:
        assert status == 0
        # An index that let go of all of it once more, a minute later, would have nothing left.
        assert "" not in await (await Unit.begin(stores.connection, ANNA)).table("obsolete").all()
        assert await seen(stores) == await seen(before)
        assert await shared(stores.connection) == await by_rows(stores.connection)
    await before.close()


async def test_a_proxy_that_serves_the_directory_keeps_it(old, run) -> None:
    serving = await opened(old)
    status, _, err = await run(old)
    await serving.close()
    assert status == 1
    assert "a process works on" in err


async def test_a_replica_that_serves_the_fleet_keeps_it(old, run, server) -> None:
    async with fleet(server):
        status, _, err = await run(old)
    assert status == 1
    assert "a replica works on the target" in err


async def test_vectors_of_another_model_are_not_mixed(old, run, server) -> None:
    stores = RedisStores(Places(redis_url=server.url, prefix="t:"))
    await stores.open()
    await stores.memories.stamp_model(EmbeddingModel("narrow", 2, 0.3, 0.8))
    someone = Scope("acme", "carl")
    await store(stores.memories, create("x", someone, vec=vector(1)[:8]), scope=someone)
    await stores.close()
    status, _, err = await run(old)
    assert status == 1
    assert "wide (3 dimensions)" in err
    assert "memory-proxy reembed" in err


# ---------------------------------------------------------------- compared
async def test_what_is_missing_in_the_target_is_told(old, config, run, server, monkeypatch) -> None:
    async def lossy(unit: Unit, **more: object) -> None:
        await write(unit, **more)
        unit.table("memories").drop("f1")
        unit.table("exchanges:" + next(iter(await unit.table("sessions").all()), "")).clear()

    write = moving._write
    monkeypatch.setattr(moving, "_write", lossy)
    status, out, _ = await run(old)
    assert status == 1
    assert "NOT THE SAME: memories" in out
    assert "exchanges" in out.split("NOT THE SAME")[1]


async def test_other_words_in_the_target_are_told(old, run, server, monkeypatch) -> None:
    async def careless(unit: Unit, **more: object) -> None:
        await write(unit, **more)
        if (row := await unit.table("memories").get("f1")) is not None:
            unit.table("memories").put("f1", {**row, "content": "something else"})

    write = moving._write
    monkeypatch.setattr(moving, "_write", careless)
    status, out, _ = await run(old, "--json")
    assert status == 1
    assert json.loads(out)["differs"] == ["memories"]


async def test_what_was_not_the_same_is_compared_again(old, run, server, monkeypatch) -> None:
    async def careless(unit: Unit, **more: object) -> None:
        await write(unit, **more)
        await say(unit, "something else")

    async def say(unit: Unit, content: str) -> None:
        if (row := await unit.table("memories").get("f1")) is not None:
            unit.table("memories").put("f1", {**row, "content": content})

    write = moving._write
    monkeypatch.setattr(moving, "_write", careless)
    assert (await run(old))[0] == 1
    async with fleet(server) as stores:
        await stores.memories.forgetting._units.write(BEN, lambda unit: say(unit, "fact 1 of tea"))
    assert (await run(old))[0] == 0


async def test_the_directory_is_left_as_it_was(old, run) -> None:
    def rows() -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(old / "memory.db")) as database:
            tables = database.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'meta'"
            )
            return [r for (t,) in tables.fetchall() for r in database.execute(f"SELECT * FROM {t}")]

    settled = SqliteStores(old)
    await settled.open()
    await settled.sessions.sweep(NOW, lambda state: None)
    await settled.jobs.claim(NOW, 1.0, upto_lane=0)
    await settled.close()
    before = rows()
    await run(old)
    assert rows() == before


async def test_the_configuration_has_to_name_the_backend(old, config, run) -> None:
    with pytest.raises(migrate_cli.ConfigError, match="is redis, not"):
        await run(old, "--to", "redis+qdrant")
    config.write_text("storage: {backend: sqlite}\n", "utf-8")
    with pytest.raises(migrate_cli.ConfigError, match="is sqlite"):
        await run(old)


async def test_a_directory_without_memories_is_told_and_none_is_made(run, tmp_path) -> None:
    with pytest.raises(migrate_cli.ConfigError, match="--data-dir"):
        await run(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
