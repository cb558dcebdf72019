"""`memory-proxy keys …` on a real data directory."""

import argparse
import io
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import keys as keys_cli
from proxy.http.auth.keys import FoundKey, KeyRing
from proxy.storage.sqlite import SqliteStores
from tests.cli.conftest import Run


@pytest.fixture
def run(command):
    return partial(command, "keys")


async def find(tmp_path: Path, key: str) -> FoundKey | None:
    """Return what a proxy on the data directory finds for the key."""
    stores = SqliteStores(tmp_path / "data")
    await stores.open()
    try:
        return await KeyRing(stores.keys).find(key)
    finally:
        await stores.close()


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


async def test_a_key_works_until_it_is_revoked(tmp_path):
    """By the functions behind the command: it runs an event loop of its own."""
    parser = argparse.ArgumentParser()
    keys_cli.add_keys(parser.add_subparsers().add_parser("keys"))
    where = ["--data-dir", str(tmp_path / "data")]
    args = parser.parse_args(["keys", "create", "--name", "a", "--tenant", "acme", "--user", "zoe", *where])
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", out)
        assert await keys_cli._create(args) == 0
    key = next(line for line in out.getvalue().splitlines() if line.startswith("mp-"))
    found = await find(tmp_path, key)
    assert (found.key.tenant, found.key.user, found.upstream_key) == ("acme", "zoe", None)
    assert await keys_cli._revoke(parser.parse_args(["keys", "revoke", found.key.id, *where])) == 0
    assert await find(tmp_path, key) is None


def test_a_revoked_key_is_marked_and_cannot_be_revoked_again(run):
    run("create", "--name", "a")
    (made,) = listed(run)
    assert run("revoke", made["id"])[0] == 0
    assert listed(run)[0]["revoked_at"] is not None
    assert "revoked" in run("list")[1]
    for id_ in (made["id"], "nope"):
        status, _, printed = run("revoke", id_)
        assert (status, id_ in printed) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--name", ""],
        ["--name", "a\nb"],
        ["--name", "a" * 101],
        ["--name", "a", "--user", " "],
        ["--name", "a", "--user", "z\x1f"],
        ["--name", "a", "--tenant", ""],
        ["--name", "a", "--rights", "root"],
        ["--name", "a", "--rights", ""],
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


def test_without_data_the_commands_say_so_and_create_nothing(run, tmp_path):
    data = tmp_path / "data"
    for argv, status, answered in (
        (("list",), 0, ""),
        (("list", "--json"), 0, "[]\n"),
        (("revoke", "key_1"), 1, ""),
    ):
        found, out, printed = run(*argv)
        assert (found, out) == (status, answered)
        assert f"no data in {data}" in printed
        assert "--data-dir" in printed
        assert "keys create" in printed
    assert not data.exists()
