"""`memory-proxy backup`, `restore` and `receipts` as an operator uses them, on a real data directory."""

import asyncio
import json
import stat
import subprocess
import sys
import time
from pathlib import Path

from proxy.cli import opened_stores
from proxy.config import load
from proxy.domain.changes import Create
from proxy.domain.core import Memory, MemoryFilter, Scope
from proxy.domain.ports import EmbeddingModel
from proxy.storage.sqlite import SqliteStores

ANNA = Scope("default", "anna")
OF_ANNA = MemoryFilter(tenant="default", user="anna", include_inactive=True)


async def remember(data_dir: Path, *contents: str) -> None:
    stores = SqliteStores(data_dir)
    await stores.open()
    await stores.memories.stamp_model(EmbeddingModel("mini", 3, 0.3, 0.8))
    for content in contents:
        now = time.time()
        memory = Memory(
            id=content, scope=ANNA, type="semantic", content=content, source="api", created_at=now,
            updated_at=now, valid_from=now,
        )  # fmt: skip
        await stores.memories.apply(ANNA, [Create(memory, None)], expect=await stores.memories.stamp(ANNA))
    await stores.close()


def opened(data_dir: Path):
    return opened_stores(load(None, {}, {"storage": {"data_dir": data_dir}}))


async def forget(data_dir: Path, memory_id: str) -> None:
    async with opened(data_dir) as stores:
        await stores.memories.forget(OF_ANNA, memory_id, by="test")


async def listed(data_dir: Path) -> set[str]:
    async with opened(data_dir) as stores:
        page = await stores.memories.list(OF_ANNA, limit=99)
    return {memory.content for memory in page.items}


def test_backup_forget_restore_as_documented(command, tmp_path):
    data, copy = tmp_path / "data", str(tmp_path / "copy")
    asyncio.run(remember(data, "tea", "rum"))
    status, out, _ = command("backup", copy)
    assert (status, "2 memories" in out, "verified" in out) == (0, True, True)
    asyncio.run(forget(data, "rum"))
    asyncio.run(remember(data, "gin"))
    status, out, _ = command("restore", copy)
    assert status == 0
    for words in ("Restored:", "1 deletion since", "1 memory", "before-restore", "embedding.model"):
        assert words in out
    assert asyncio.run(listed(data)) == {"tea"}
    status, out, _ = command("restore", copy, "--with-forgotten")
    assert (status, "since then are back" in out) == (0, True)
    assert asyncio.run(listed(data)) == {"tea", "rum"}


def test_backup_and_restore_go_through_pipes(tmp_path):
    asyncio.run(remember(tmp_path / "data", "tea"))
    command = [sys.executable, "-c", "from proxy.cli.main import main; raise SystemExit(main())"]
    backup = subprocess.run(
        [*command, "backup", "-", "--data-dir", str(tmp_path / "data")], capture_output=True, timeout=60
    )
    assert (backup.returncode, b"1 memory, " in backup.stderr) == (0, True)
    assert not list((tmp_path / "data" / "run").iterdir())
    restore = subprocess.run(
        [*command, "restore", "-", "--data-dir", str(tmp_path / "other")],
        input=backup.stdout, capture_output=True, timeout=60,
    )  # fmt: skip
    assert restore.returncode == 0, restore.stderr
    assert asyncio.run(listed(tmp_path / "other")) == {"tea"}


def test_saved_receipts_repeat_deletions_after_a_loss(command, tmp_path):
    data, copy, receipts = tmp_path / "data", str(tmp_path / "copy"), tmp_path / "receipts"
    asyncio.run(remember(data, "tea", "rum"))
    command("backup", copy)
    asyncio.run(forget(data, "rum"))
    assert command("receipts", str(receipts))[0] == 0
    assert stat.S_IMODE(receipts.stat().st_mode) == 0o600
    assert json.loads(receipts.read_text())["memory_id"] == "rum"
    (data / "memory.db").unlink()
    status, out, _ = command("restore", copy, "--receipts", str(receipts))
    assert (status, "1 deletion since" in out) == (0, True)
    assert asyncio.run(listed(data)) == {"tea"}


def test_a_running_server_a_bad_backup_and_a_missing_database_are_one_line_errors(command, tmp_path):
    missing = f"there is no {tmp_path / 'data' / 'memory.db'}: set --data-dir"
    assert command("backup", str(tmp_path / "copy")) == (2, "", f"memory-proxy: {missing}\n")
    asyncio.run(remember(tmp_path / "data", "tea"))
    (tmp_path / "bad").write_bytes(b"x" * 9999)
    status, _, err = command("restore", str(tmp_path / "bad"))
    assert (status, "is not a whole backup" in err, "Nothing was changed." in err) == (1, True, True)
    status, _, err = command("restore", str(tmp_path / "absent"))
    assert (status, "No such file" in err) == (1, True)
    status, _, err = command("restore", str(tmp_path / "bad"), "--receipts", str(tmp_path / "bad"))
    assert (status, "line 1 is not a receipt" in err) == (2, True)
    command("backup", str(tmp_path / "copy"))

    async def while_running():
        async with opened(tmp_path / "data"):
            return command("restore", str(tmp_path / "copy"))

    status, _, err = asyncio.run(while_running())
    assert (status, "stop the proxy first" in err) == (1, True)
