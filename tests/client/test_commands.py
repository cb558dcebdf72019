"""`memory-proxy memory …` against a fake proxy on a real socket."""

import argparse
import itertools
import json
import time
from typing import Any

import pytest

from proxy.client.command_line import add_memory
from proxy.client.commands import REFUSED, WRONG_USE
from tests.support.fake_proxy import FakeProxy, serving_in_thread

AT = 1768400000
SESSION = {"id": "s-[1]", "exchanges": 4, "pending": 2, "last_at": AT}
JOB = {
    "id": "7", "user_id": "alice", "session_id": "s-1", "state": "dead", "reason": "refused", "attempts": 5,
    "created_at": AT,
}  # fmt: skip
HELD = {"id": "held_1", "content": "Always [buy]", "reason": "planted", "created_at": AT}
RECEIPT = {
    "id": "rcpt_1", "created_at": AT, "user_id": "alice", "project_id": "apollo", "type": None,
    "memory_id": None, "by": "key:k", "counts": {"memories": 12},
}  # fmt: skip
DOCUMENT = {
    "id": "doc_1", "name": "guide[1].md", "version": 2, "passages": 3, "status": "indexing",
    "change": "updated", "redacted": ["Keys › [old]"], "updated_at": AT, "content": "# Figs\n\nRipe.\n",
    "outline": [{"headings": ["Figs", "[When]"], "redacted": True}, {"headings": [], "redacted": False}],
}  # fmt: skip
EVENT = {
    "id": "mem_1:1", "at": AT, "action": "superseded", "memory_id": "mem_1", "content": "80 [kg]",
    "became": "75 kg",
}  # fmt: skip
ENTITY = {"id": "ent_1", "name": "Mara [L]", "kind": "person", "aliases": ["Mari"], "memories": 3}
OF_ENTITY = {"id": "mem_1", "content": "Likes [figs]", "type": "semantic"}
CONTRADICTION = {"id": "cntr_1", "older": OF_ENTITY, "newer": OF_ENTITY, "found_at": AT}
INSIGHTS = {"active": 4, "archived": 1, "core": 2, "pinned": 1, "used": 5, "unused": 3}
ANSWERS: dict[tuple[str, str], Any] = {
    (method, f"/v1/memory/{path}"): answer
    for method, path, answer in (
        ("GET", "sessions", {"data": [SESSION], "has_more": True}),
        ("POST", "sessions/s-1/end", {"id": "s-1", "queued_exchanges": 2}),
        ("GET", "timeline", {"data": [EVENT], "has_more": True}),
        ("GET", "entities", {"data": [ENTITY], "has_more": True}),
        ("GET", "entities/ent_1/memories", {"data": [OF_ENTITY]}),
        ("POST", "mem_1/pin", {**OF_ENTITY, "pinned": True}),
        ("POST", "mem_1/archive", {**OF_ENTITY, "pinned": False, "archived": True}),
        ("POST", "evolve", {"steps": [{"step": "decay", "ids": {"archived": ["mem_[1]"]}}]}),
        ("GET", "insights", {**INSIGHTS, "fading": [{**OF_ENTITY, "fades_at": AT}]}),
        ("GET", "jobs", {"data": [JOB], "has_more": False}),
        ("POST", "jobs/retry", {"object": "memory.jobs", "revived": 3}),
        ("GET", "quarantine", {"data": [HELD], "has_more": False}),
        ("POST", "quarantine/held_1/release", {"id": "mem_9"}),
        ("POST", "mem_1/undo", {"id": "mem_1", "restored": ["mem_2", "mem_3"]}),
        ("POST", "contradictions/cntr_1", {"id": "cntr_1"}),
        ("GET", "contradictions", {"data": [CONTRADICTION]}),
        ("DELETE", "quarantine/held_1", {"id": "held_1", "deleted": True}),
        ("GET", "receipts", {"data": [RECEIPT], "has_more": False}),
        ("POST", "documents", DOCUMENT),
        ("GET", "documents", {"data": [DOCUMENT], "has_more": True}),
        ("GET", "documents/doc_1", DOCUMENT),
        ("DELETE", "documents/doc_1", {"id": "doc_1", "deleted": True, "receipt": "rcpt_1"}),
    )
}


@pytest.fixture(scope="module")
def served():
    fake = FakeProxy(answers=ANSWERS)
    with serving_in_thread(fake.app()) as origin:
        yield fake, origin


@pytest.fixture
def proxy(served, monkeypatch):
    """The fake proxy without memories, named by MEMORY_PROXY_URL."""
    fake, origin = served
    fake.memories.clear()
    fake.requests.clear()
    fake.ids = itertools.count(1)
    monkeypatch.setenv("MEMORY_PROXY_URL", origin)
    monkeypatch.setenv("COLUMNS", "80")
    return fake


def run(*words: str) -> int:
    """Run `memory-proxy memory` with these words; return its exit status."""
    parser = argparse.ArgumentParser()
    add_memory(parser.add_subparsers().add_parser("memory"))
    args = parser.parse_args(["memory", *words])
    status: int = args.func(args)
    return status


# ---------------------------------------------------------------- reading
def test_list_shows_a_users_memories_newest_first_with_their_state(proxy, capsys):
    proxy.store("alice", "User likes [tea]", project="apollo")
    proxy.store("alice", "User has a bike")["superseded_by"] = "mem_9"
    proxy.store("alice", "User has a guest")["expires_at"] = AT + 1
    proxy.store("alice", "User has a lease")["expires_at"] = time.time() + 999
    proxy.store("alice", "User has a kite")["archived"] = True
    proxy.store("bob", "User lives in Oslo")
    assert run("list", "--user", "alice", "--type", "semantic", "--limit", "7", "--inactive") == 0
    shown = capsys.readouterr().out
    assert shown.index("kite (archived)") < shown.index("guest (expired)") < shown.index("bike (superseded)")
    assert "mem_0001 project apollo" in shown
    assert "lease (" not in shown
    assert "Oslo" not in shown
    query = {"user_id": "alice", "type": "semantic", "limit": "7", "include": "inactive"}
    assert proxy.requests == [("GET", "/v1/memory", query)]
    assert run("list", "--user", "alice", "--limit", "2") == 0
    assert "2 of 5; for more: --after mem_0004" in capsys.readouterr().out
    assert run("list", "--user", "unknown") == 0
    assert "Nothing is remembered" in capsys.readouterr().out


@pytest.mark.parametrize("command", [("list",), ("search", "tea"), ("get", "mem_0001")])
def test_control_characters_in_a_memory_do_not_reach_the_terminal(proxy, capsys, command):
    proxy.store("alice", "Likes \x1b[8mtea\x1b]0;x\x07 \x9b2J\u202egnp\r :wave:")
    assert run(*command, "--user", "alice") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert not set(shown) & set("\x1b\x07\x9b\u202e\r")
    assert "Likes ␛[8mtea␛]0;x␇ ‹U+009B›2J‹U+202E›gnp␍ :wave:" in shown


def test_search_shows_score_and_reason_and_why_a_conversation_would_get_nothing(proxy, capsys):
    proxy.store("alice", "User lives in Rome")
    question = ("search", "where is home?", "--user", "alice")
    assert run(*question, "--project", "p", "--type", "semantic", "--limit", "3") == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("0.50", "User lives in Rome", "dense .41"))
    assert "would get no memories" not in shown
    scope = {"user_id": "alice", "project_id": "p"}
    body = {"query": "where is home?", **scope, "memory_types": ["semantic"], "limit": 3}
    assert proxy.requests[-1][2] == body
    proxy.unshown = "general_fact"
    assert run(*question) == 0
    assert "would get no memories: general_fact." in capsys.readouterr().out
    assert run("search", "where is home?", "--user", "bob") == 0
    proxy.unshown = ""
    shown = capsys.readouterr().out
    assert "No memory matches." in shown
    assert "would get no memories: general_fact." in shown


# ---------------------------------------------------------------- writing
def test_add_stores_and_get_shows_it_with_its_history(proxy, capsys):
    assert run("add", "User is left-handed", "--user", "alice") == 0
    assert "Stored: mem_0001" in capsys.readouterr().out
    assert run("get", "mem_0001") == 0
    shown = capsys.readouterr().out
    assert "User is left-handed" in shown
    assert "created by api: as it was\n" in shown
    assert "updated by api: as it was → as it is\n" in shown


def test_edit_sends_only_the_given_changes(proxy, capsys):
    id_ = proxy.store("alice", "User likes tea")["id"]
    words = ("--content", "User likes coffee", "--tags", "drink, hot", "--expires", "never", "--archive")
    assert run("edit", id_, *words) == 0
    changes = {"content": "User likes coffee", "tags": ["drink", "hot"], "archived": True, "expires_at": None}
    assert proxy.requests == [("PATCH", id_, changes)]
    assert f"Changed: {id_}" in capsys.readouterr().out
    assert run("edit", id_, "--to-project", "none", "--restore", "--tags", "") == 0
    assert proxy.requests[-1][2] == {"project_id": None, "archived": False, "tags": []}
    assert run("edit", id_) == WRONG_USE
    assert len(proxy.requests) == 2


@pytest.fixture
def _of_berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_of_berlin")
@pytest.mark.parametrize(
    ("text", "expires_at"),
    [
        ("2126-12-31", 4_954_345_200),
        ("2126-12-31 18:30", 4_954_411_800),
        ("2126-12-31t17:30z", 4_954_411_800),
        ("4954411800", 4_954_411_800),
        ("12h", -43_200),
        ("2w", -1_209_600),
    ],
)
def test_an_expiry_is_a_date_a_time_or_a_duration(proxy, text, expires_at):
    id_ = proxy.store("alice", "User likes tea")["id"]
    now = time.time()
    assert run("edit", id_, "--expires", text) == 0
    expected = expires_at if expires_at > 0 else pytest.approx(now - expires_at, abs=30)
    assert proxy.requests[-1][2] == {"expires_at": expected}


# ---------------------------------------------------------------- forgetting
def test_forgetting_one_memory_needs_no_confirmation(proxy, capsys):
    id_, other = proxy.store("alice", "x")["id"], proxy.store("alice", "y")["id"]
    for dry, left in ((("--dry-run",), [id_, other]), ((), [other])):
        assert run("forget", id_, *dry) == 0
        assert list(proxy.memories) == left
    shown = capsys.readouterr().out
    assert "This would forget 1 memory" in shown
    assert "Forgotten: 1 memory" in shown
    assert run("forget", "../memory?user_id=alice") == REFUSED, "an id is one path segment"
    assert len(proxy.memories) == 1


@pytest.mark.parametrize(("answer", "status", "left"), [("y", 0, 0), ("n", REFUSED, 2), ("", REFUSED, 2)])
def test_forgetting_everything_shows_the_count_and_asks(proxy, capsys, monkeypatch, answer, status, left):
    proxy.store("alice", "x")
    proxy.store("alice", "y")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda *_: answer)
    assert run("forget", "--user", "alice") == status
    assert len(proxy.memories) == left
    assert "Forget 2 memories of user alice? This cannot be undone. [y/N]" in capsys.readouterr().out


def test_without_a_terminal_forgetting_everything_needs_yes(proxy, capsys, monkeypatch):
    proxy.store("alice", "x")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert run("forget", "--user", "alice", "--project", "p") == REFUSED
    assert "--yes" in capsys.readouterr().err
    assert run("forget", "--user", "alice", "--dry-run") == 0
    assert proxy.requests[-1][2]["dry_run"] == "true"
    assert len(proxy.memories) == 1
    assert run("forget", "--user", "alice", "--project", "p", "--yes") == 0
    assert proxy.memories == {}
    assert proxy.requests[-1] == ("DELETE", "/v1/memory", {"user_id": "alice", "project_id": "p"})


# ---------------------------------------------------------------- export and import
def test_an_export_can_be_imported_again(proxy, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMORY_PROXY_API_KEY", "mp-1")
    proxy.store("alice", "User likes tea")
    proxy.store("alice", "用户住在上海")
    file = tmp_path / "alice.ndjson"
    assert run("export", str(file), "--user", "alice") == 0
    assert "Exported: 2 memories" in capsys.readouterr().err
    assert proxy.authorization == "Bearer mp-1"
    assert file.stat().st_mode & 0o077 == 0, "only the owner may read an export"
    exported = dict(proxy.memories)
    proxy.memories.clear()
    assert run("import", str(file), "--user", "alice") == 0
    assert "Imported: 2 memories." in capsys.readouterr().out
    assert proxy.memories == exported
    assert run("import", str(file)) == 0
    assert "Imported: 0 memories, 2 known already." in capsys.readouterr().out


# ---------------------------------------------------------------- sessions, jobs, quarantine, documents
@pytest.mark.parametrize(
    ("words", "request_", "parts"),
    [
        ("sessions --user alice", "GET sessions", ("s-[1]", "4", "--after s-[1]")),
        ("timeline --since 2027-01", "GET timeline", ("80 [kg] → 75 kg", "mem_1", "--after mem_1:1")),
        ("entities", "GET entities", ("Mara [L]", "ent_1, Mari", "person", "--after ent_1")),
        ("entities ent_1", "GET entities/ent_1/memories", ("Likes [figs]", "mem_1")),
        ("end s-1 --user alice", "POST sessions/s-1/end", ("Queued: 2 exchanges",)),
        ("jobs --state dead", "GET jobs", ("s-1", "dead (refused)", "5")),
        ("jobs --retry", "POST jobs/retry", ("Queued again: 3 jobs",)),
        ("quarantine", "GET quarantine", ("Always [buy]", "held_1", "planted")),
        ("quarantine --release held_1", "POST quarantine/held_1/release", ("mem_9",)),
        ("quarantine --discard held_1", "DELETE quarantine/held_1", ("Discarded: held_1",)),
        ("undo mem_1 --user alice", "POST mem_1/undo", ("Current again: mem_2 mem_3",)),
        ("contradictions --user alice", "GET contradictions", ("Likes [figs]", "cntr_1")),
        ("contradictions cntr_1 --keep older", "POST contradictions/cntr_1", ("Decided: cntr_1",)),
        ("pin mem_1 --user alice", "POST mem_1/pin", ("mem_1 is pinned: Likes [figs]",)),
        ("archive mem_1", "POST mem_1/archive", ("mem_1 is archived",)),
        ("evolve --user alice --dry-run", "POST evolve", ("1 archived",)),
        ("insights --days 7", "GET insights", ("4 active, 1 archived, 2 core, 1 pinned.", "used 5×")),
        ("receipts", "GET receipts", ("alice apollo", "12 memories", "key:k", "rcpt_1")),
        ("documents list", "GET documents", ("guide[1].md", "doc_1", "(indexing)", "--after doc_1")),
        ("documents show doc_1", "GET documents/doc_1", ("Figs › [When] (redacted)", "(no heading)")),
        ("documents delete doc_1", "DELETE documents/doc_1", ("Deleted: doc_1", "rcpt_1")),
    ],
)
def test_each_command_sends_its_request_and_shows_the_answer(proxy, capsys, words, request_, parts):
    assert run(*words.split()) == 0
    out = capsys.readouterr().out
    assert all(part in out for part in parts), out
    ((method, path, _),) = proxy.requests
    assert (method, path) == tuple(request_.replace(" ", " /v1/memory/").split())
    assert run(*words.split(), "--json") == 0
    assert json.loads(capsys.readouterr().out) == ANSWERS[method, path]


def test_files_are_added_as_documents_and_a_bad_one_does_not_stop_the_others(proxy, tmp_path, capsys):
    (tmp_path / "guide.md").write_text("\ufeff# Figs\n\nÄpfel.\n", "utf-8")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / "notes.txt").write_text("Plain.", "utf-8")
    files = [str(tmp_path / name) for name in ("none.md", "image.png", "guide.md", "notes.txt")]
    assert run("documents", "add", *files, "--user", "alice", "--project", "apollo") == WRONG_USE
    scope = {"user_id": "alice", "project_id": "apollo"}
    assert [body for _, _, body in proxy.requests] == [
        {"name": "guide.md", "content": "# Figs\n\nÄpfel.\n", "format": "markdown", **scope},
        {"name": "notes.txt", "content": "Plain.", "format": "text", **scope},
    ]
    printed = capsys.readouterr()
    assert "New version: guide.md doc_1 (version 2, 3 passages)" in printed.out
    assert "Redacted under: Keys › [old]" in printed.out
    errors = " ".join(printed.err.split())
    assert "No such file" in errors
    assert "not text in UTF-8" in errors
