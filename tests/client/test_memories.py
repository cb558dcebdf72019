"""`memory-proxy memory …` against a fake proxy."""

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.client import MemoryClient, Refused
from proxy.client.command_line import NO_PROXY
from proxy.client.commands import REFUSED, WRONG_USE
from tests.client.commanding import run_memory as run
from tests.support.fake_proxy import FakeProxy

ANSWERS: dict[tuple[str, str], Any] = {
    ("GET", "/v1/memory/sessions"): {
        "data": [{"id": "s-[1]", "exchanges": 4, "pending": 2, "last_at": 1768400000}], "has_more": True,
    },
    ("POST", "/v1/memory/sessions/s-1/end"): {"id": "s-1", "queued_exchanges": 2},
    ("GET", "/v1/memory/jobs"): {
        "data": [
            {"id": "7", "user_id": "alice", "session_id": "s-1", "state": "dead", "reason": "refused",
             "attempts": 5, "created_at": 1768400000},
        ],
        "has_more": False,
    },
    ("POST", "/v1/memory/jobs/retry"): {"object": "memory.jobs", "revived": 3},
    ("GET", "/v1/memory/quarantine"): {
        "data": [{"id": "held_1", "content": "Always [buy]", "reason": "planted", "created_at": 1768400000}],
        "has_more": False,
    },
    ("POST", "/v1/memory/quarantine/held_1/release"): {"id": "mem_9"},
    ("DELETE", "/v1/memory/quarantine/held_1"): {"id": "held_1", "deleted": True},
    ("GET", "/v1/memory/receipts"): {
        "data": [
            {"id": "rcpt_1", "created_at": 1768400000, "user_id": "alice", "project_id": "apollo",
             "type": None, "memory_id": None, "by": "key:k", "counts": {"memories": 12}},
        ],
        "has_more": False,
    },
}  # fmt: skip


def test_list_shows_what_is_stored_newest_first(proxy: FakeProxy, capsys: pytest.CaptureFixture[str]) -> None:
    proxy.store("alice", "User likes [tea]")
    proxy.store("alice", "User lives in Rome")
    proxy.store("bob", "User lives in Oslo")
    assert run("list", "--user", "alice", "--type", "semantic", "--limit", "7") == 0
    shown = capsys.readouterr().out
    assert shown.index("Rome") < shown.index("[tea]")
    assert "Oslo" not in shown
    assert "mem_0001" in shown
    assert proxy.requests == [
        ("GET", "/v1/memory", {"user_id": "alice", "type": "semantic", "limit": "7"}),
    ]


def test_list_marks_inactive_memories_and_names_projects(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.store("alice", "User lives in Rome", project="apollo")
    proxy.store("alice", "User has a bike")["superseded_by"] = "mem_9"
    proxy.store("alice", "User has a guest")["expires_at"] = 1768400001
    proxy.store("alice", "User has a lease")["expires_at"] = time.time() + 999
    proxy.store("alice", "User has a kite")["archived"] = True
    assert run("list", "--user", "alice", "--inactive") == 0
    shown = capsys.readouterr().out
    assert "mem_0001 project apollo" in shown
    assert "bike (superseded)" in shown
    assert "guest (expired)" in shown
    assert "kite (archived)" in shown
    assert "lease (" not in shown
    assert shown.count("project") == 1


def test_list_names_the_option_for_the_next_page(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        proxy.store("alice", f"Fact {number}")
    assert run("list", "--user", "alice", "--limit", "2") == 0
    assert "2 of 3; for more: --after mem_0002" in capsys.readouterr().out


def test_an_empty_list_is_a_sentence(proxy: FakeProxy, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--user", "unknown") == 0
    assert "Nothing is remembered" in capsys.readouterr().out


def test_json_is_the_answer_of_the_proxy(proxy: FakeProxy, capsys: pytest.CaptureFixture[str]) -> None:
    proxy.store("alice", "用户住在上海")
    assert run("list", "--user", "alice", "--json") == 0
    out = capsys.readouterr().out
    assert json.loads(out)["data"][0]["content"] == "用户住在上海"
    assert "用户住在上海" in out


@pytest.mark.parametrize("command", [("list",), ("search", "tea"), ("get", "mem_0001")])
def test_control_characters_in_a_memory_do_not_reach_the_terminal(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    said = "Likes \x1b[8mtea\x1b]0;x\x07 \x9b2J\u202egnp\r :wave:"
    proxy.store("alice", said)
    assert run(*command, "--user", "alice") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert not set(shown) & set("\x1b\x07\x9b\u202e\r")
    assert "Likes ␛[8mtea␛]0;x␇ ‹U+009B›2J‹U+202E›gnp␍ :wave:" in shown


def test_search_sends_the_question_and_shows_score_and_reason(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.store("alice", "User lives in Rome")
    assert run("search", "where is home?", "--user", "alice", "--project", "p", "--type", "semantic") == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("0.50", "User lives in Rome", "dense .41"))
    assert proxy.requests[-1][2] == {
        "query": "where is home?",
        "user_id": "alice",
        "project_id": "p",
        "memory_types": ["semantic"],
    }
    assert "would get no memories" not in shown
    proxy.unshown = "general_fact"
    assert run("search", "where is home?", "--user", "alice", "--limit", "3") == 0
    assert "would get no memories: general_fact." in capsys.readouterr().out
    assert proxy.requests[-1][2]["limit"] == 3
    assert run("search", "where is home?", "--user", "bob") == 0
    shown = capsys.readouterr().out
    assert "No memory matches." in shown
    assert "would get no memories: general_fact." in shown  # also without a match


def test_add_stores_and_get_shows_it_with_its_history(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("add", "User is left-handed", "--user", "alice") == 0
    assert "Stored: mem_0001" in capsys.readouterr().out
    assert run("get", "mem_0001") == 0
    shown = capsys.readouterr().out
    assert "User is left-handed" in shown
    assert "created by api: as it was\n" in shown
    assert "updated by api: as it was → as it is\n" in shown


def test_forgetting_one_memory_needs_no_confirmation(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    memory_id = proxy.store("alice", "x")["id"]
    remaining = proxy.store("alice", "y")["id"]
    assert run("forget", memory_id) == 0
    assert list(proxy.memories) == [remaining]
    assert "Forgotten: 1 memory" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "status", "left"), [("y", 0, 0), ("n", REFUSED, 2), ("", REFUSED, 2)])
def test_forgetting_everything_shows_the_count_and_asks(
    proxy: FakeProxy,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    status: int,
    left: int,
) -> None:
    proxy.store("alice", "x")
    proxy.store("alice", "y")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda *_: answer)
    assert run("forget", "--user", "alice") == status
    assert len(proxy.memories) == left
    assert "Forget 2 memories of user alice? This cannot be undone. [y/N]" in capsys.readouterr().out


def test_without_a_terminal_forgetting_everything_needs_yes(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.store("alice", "x")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert run("forget", "--user", "alice", "--project", "p") == REFUSED
    assert "--yes" in capsys.readouterr().err
    assert len(proxy.memories) == 1
    assert run("forget", "--user", "alice", "--project", "p", "--yes") == 0
    assert proxy.memories == {}
    assert proxy.requests[-1] == ("DELETE", "/v1/memory", {"user_id": "alice", "project_id": "p"})


@pytest.mark.parametrize("words", [("forget",), ("forget", "mem_1", "--type", "semantic")])
def test_forget_refuses_ambiguous_arguments(proxy: FakeProxy, words: tuple[str, ...]) -> None:
    assert run(*words) == WRONG_USE
    assert proxy.requests == []


def test_a_refusal_shows_the_message_of_the_proxy(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("list") == REFUSED
    assert "Refused (400): `user_id` is missing" in capsys.readouterr().err
    assert run("forget", "mem_none") == REFUSED
    assert "Refused (404): No memory with id 'mem_none'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        (None, "Set MEMORY_PROXY_API_KEY to a valid credential."),
        ("sk-mem-old", "The credential was read from MEMORY_PROXY_API_KEY."),
    ],
)
def test_a_refused_credential_names_its_environment_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str | None, remedy: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Refused(401, "There is no such API key, or it has been revoked.")

    monkeypatch.setattr(MemoryClient, "get", refuse)
    monkeypatch.delenv("MEMORY_PROXY_API_KEY", raising=False)
    if key:
        monkeypatch.setenv("MEMORY_PROXY_API_KEY", key)
    assert run("list", "--user", "alice") == REFUSED
    said = capsys.readouterr().err
    assert said.splitlines() == [
        "Refused (401): There is no such API key, or it has been revoked.",
        remedy,
    ]


def test_an_id_with_reserved_characters_stays_one_path_segment(proxy: FakeProxy) -> None:
    proxy.store("alice", "x")
    assert run("forget", "../memory?user_id=alice") == REFUSED
    assert len(proxy.memories) == 1


def test_an_unreachable_proxy_is_one_line_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--user", "alice", "--url", "http://127.0.0.1:9") == NO_PROXY
    error = " ".join(capsys.readouterr().err.split())
    assert "No memory-proxy answers at http://127.0.0.1:9" in error
    assert "memory-proxy serve" in error


@pytest.mark.parametrize("words", [("list", "--limit", "0"), ("list", "--type", "x"), ("search",), ()])
def test_wrong_use_is_refused_by_the_parser(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as left:
        run(*words)
    assert left.value.code == WRONG_USE


# ---------------------------------------------------------------- edit
def test_edit_sends_only_the_given_changes(proxy: FakeProxy, capsys: pytest.CaptureFixture[str]) -> None:
    memory_id = proxy.store("alice", "User likes tea")["id"]
    words = ("--content", "User likes coffee", "--tags", "drink, hot", "--expires", "never", "--archive")
    assert run("edit", memory_id, *words) == 0
    assert proxy.requests == [
        (
            "PATCH",
            memory_id,
            {"content": "User likes coffee", "tags": ["drink", "hot"], "archived": True, "expires_at": None},
        )
    ]
    assert f"Changed: {memory_id}" in capsys.readouterr().out
    assert run("edit", memory_id, "--to-project", "none", "--restore", "--tags", "") == 0
    assert proxy.requests[-1][2] == {"project_id": None, "archived": False, "tags": []}


@pytest.fixture
def _of_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
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
        ("2126-12-31T18:30", 4_954_411_800),
        ("2126-12-31 18:30", 4_954_411_800),
        ("2126-12-31t17:30z", 4_954_411_800),
        ("4954411800", 4_954_411_800),
    ],
)
def test_edit_accepts_dates_and_times(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str], text: str, expires_at: float
) -> None:
    memory_id = proxy.store("alice", "User likes tea")["id"]
    assert run("edit", memory_id, "--expires", text) == 0
    assert proxy.requests[-1][2] == {"expires_at": expires_at}
    assert "expires 2126-12-31 " in capsys.readouterr().out


@pytest.mark.parametrize(("text", "seconds"), [("12h", 43_200), ("30d", 2_592_000), ("2w", 1_209_600)])
def test_edit_accepts_durations(proxy: FakeProxy, text: str, seconds: float) -> None:
    memory_id = proxy.store("alice", "User likes tea")["id"]
    began = time.time()
    assert run("edit", memory_id, "--expires", text) == 0
    assert began - 1 <= proxy.requests[-1][2]["expires_at"] - seconds <= time.time()


@pytest.mark.parametrize("text", ["soon", "2126-02-31", "5m", "d", "-3d", "nan", "inf", ""])
def test_an_invalid_time_is_refused_with_the_accepted_forms(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(SystemExit) as left:
        run("edit", "mem_1", f"--expires={text}")
    assert left.value.code == WRONG_USE
    assert "2026-12-31" in capsys.readouterr().err


def test_edit_without_a_change_is_wrong_use(proxy: FakeProxy) -> None:
    assert run("edit", "mem_1") == WRONG_USE
    assert proxy.requests == []


@pytest.mark.parametrize("words", [("mem_0001",), ("--user", "alice")])
def test_a_dry_run_forgets_nothing_and_does_not_ask(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    proxy.store("alice", "x")
    assert run("forget", *words, "--dry-run") == 0
    assert "This would forget 1 memory" in capsys.readouterr().out
    assert len(proxy.memories) == 1
    assert proxy.requests[-1][2]["dry_run"] == "true"


# ---------------------------------------------------------------- export and import
def test_an_export_can_be_imported_again(
    proxy: FakeProxy,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMORY_PROXY_API_KEY", "mp-1")
    proxy.store("alice", "User likes tea")
    proxy.store("alice", "用户住在上海")
    file = tmp_path / "alice.ndjson"
    assert run("export", str(file), "--user", "alice") == 0
    assert "Exported: 2 memories" in capsys.readouterr().err
    assert proxy.authorization == "Bearer mp-1"
    assert file.stat().st_mode & 0o077 == 0, "only the owner may read an export"
    remaining = dict(proxy.memories)
    proxy.memories.clear()
    assert run("import", str(file), "--user", "alice") == 0
    assert "Imported: 2 memories." in capsys.readouterr().out
    assert proxy.memories == remaining
    assert run("import", str(file)) == 0
    assert "Imported: 0 memories, 2 known already." in capsys.readouterr().out


def test_a_refused_export_leaves_the_file_unchanged(proxy: FakeProxy, tmp_path: Path) -> None:
    file = tmp_path / "all.ndjson"
    file.write_text("the last good one")
    assert run("export", str(file)) == REFUSED
    assert file.read_text() == "the last good one"
    assert list(tmp_path.iterdir()) == [file]


def test_an_export_without_memories_is_an_empty_file(proxy: FakeProxy, tmp_path: Path) -> None:
    assert run("export", str(tmp_path / "none"), "--user", "unknown") == 0
    assert (tmp_path / "none").read_bytes() == b""


def test_a_refused_line_is_named_and_sets_the_exit_code(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "broken.ndjson"
    file.write_text('{"id": "mem_1"}\n{broken\n')
    assert run("import", str(file)) == REFUSED
    shown = capsys.readouterr().out
    assert "Imported: 1 memory, 1 refused." in shown
    assert "line 2: The body is not valid JSON." in shown


def test_an_unreadable_file_is_wrong_use(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("import", str(tmp_path / "absent")) == WRONG_USE
    assert "Cannot read" in capsys.readouterr().err
    assert proxy.requests == []


def test_export_and_import_go_through_pipes(
    proxy: FakeProxy, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.store("alice", "User likes tea")
    assert run("export", "-", "--user", "alice") == 0
    lines = capsysbinary.readouterr().out
    assert json.loads(lines)["content"] == "User likes tea"
    proxy.memories.clear()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert run("import", "-") == 0
    assert [m["content"] for m in proxy.memories.values()] == ["User likes tea"]


# ---------------------------------------------------------------- oversight
@pytest.mark.parametrize(
    ("words", "request_", "shown"),
    [
        (("sessions", "--user", "alice"), ("GET", "sessions"), ("s-[1]", "4", "--after s-[1]")),
        (("end", "s-1", "--user", "alice"), ("POST", "sessions/s-1/end"), ("Queued: 2 exchanges",)),
        (("jobs", "--state", "dead"), ("GET", "jobs"), ("s-1", "dead (refused)", "5")),
        (("jobs", "--retry"), ("POST", "jobs/retry"), ("Queued again: 3 jobs",)),
        (("quarantine",), ("GET", "quarantine"), ("Always [buy]", "held_1", "planted")),
        (("quarantine", "--release", "held_1"), ("POST", "quarantine/held_1/release"), ("mem_9",)),
        (("quarantine", "--discard", "held_1"), ("DELETE", "quarantine/held_1"), ("Discarded: held_1",)),
        (("receipts",), ("GET", "receipts"), ("alice apollo", "12 memories", "key:k", "rcpt_1")),
    ],
)
def test_each_oversight_command_sends_its_request_and_shows_the_answer(
    proxy: FakeProxy,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    request_: tuple[str, str],
    shown: tuple[str, ...],
) -> None:
    assert run(*words) == 0
    out = capsys.readouterr().out
    assert all(part in out for part in shown), out
    ((method, path, _),) = proxy.requests
    assert (method, path) == (request_[0], f"/v1/memory/{request_[1]}")
    assert run(*words, "--json") == 0
    assert json.loads(capsys.readouterr().out) == ANSWERS[method, path]
