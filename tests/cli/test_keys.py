"""`memory-proxy keys …` on a real data directory."""

import asyncio
import json
import re
from functools import partial
from typing import Any

import pytest

from proxy.http.auth.keys import KeyRing
from proxy.storage.sqlite import SqliteStores
from tests.cli.conftest import Run


@pytest.fixture
def run(command):
    return partial(command, "keys")


def listed(run: Run) -> Any:
    status, out, _ = run("list", "--json")
    assert status == 0
    return json.loads(out)


def test_a_key_is_printed_once_and_not_stored_in_clear(run, tmp_path, monkeypatch):
    monkeypatch.setenv("UPSTREAM", "sk-upstream-secret")
    status, out, printed = run("create", "--name", "laptop", "--upstream-key", "ENV:UPSTREAM")
    assert status == 0
    key = out.strip()
    assert re.fullmatch(r"mp-[\w-]{40,}", key), "and standard output holds nothing else"
    assert "this once" in printed
    (shown,) = listed(run)
    assert (shown["name"], shown["rights"], shown["has_upstream_key"]) == ("laptop", ["chat", "memory"], True)
    assert key not in run("list")[1] + json.dumps(shown)
    everything = b"".join(f.read_bytes() for f in (tmp_path / "data").rglob("*") if f.is_file())
    for secret in (key, key[3:], "sk-upstream-secret"):
        assert secret.encode() not in everything
    assert b"laptop" in everything, "the test looks where it should"


def test_a_key_works_until_it_is_revoked(run, tmp_path):
    async def found(key):
        """Return what a proxy on the data directory finds for the key."""
        stores = SqliteStores(tmp_path / "data")
        await stores.open()
        try:
            return await KeyRing(stores.keys).find(key)
        finally:
            await stores.close()

    key = run("create", "--name", "a", "--tenant", "acme", "--user", "zoe")[1].strip()
    works = asyncio.run(found(key))
    assert (works.key.tenant, works.key.user, works.upstream_key) == ("acme", "zoe", None)
    for id_, status in ((works.key.id, 0), (works.key.id, 1), ("nope", 1)):
        assert run("revoke", id_)[0] == status
    assert listed(run)[0]["revoked_at"] is not None
    assert asyncio.run(found(key)) is None


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--name", ""], ["--name", "a\nb"], ["--name", "a" * 101], ["--name", "a", "--user", "z\x1f"]),
        *(["--name", "a", "--tenant", ""], ["--name", "a", "--rights", "root"]),
        ["--name", "a", "--user", "zoe", "--rights", "chat,admin"],
        ["--name", "a", "--upstream-key", "sk-in-the-process-list"],
        ["--name", "a", "--upstream-key", "ENV:ABSENT"],
    ],
)
def test_invalid_arguments_create_no_key(run, arguments):
    status, out, printed = run("create", *arguments)
    assert (status, out) == (2, "")
    assert printed.startswith("memory-proxy: ")
    assert "sk-in" not in printed
    assert "ENV:ABSENT" not in arguments or "'ABSENT' is not set" in printed
    assert listed(run) == []
