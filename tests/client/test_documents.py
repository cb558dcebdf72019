"""`memory-proxy memory documents …` against a fake proxy."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.client.commands import REFUSED, WRONG_USE
from tests.client.commanding import run_memory
from tests.support.fake_proxy import FakeProxy

DOCUMENT = {
    "id": "doc_1", "name": "guide[1].md", "version": 2, "passages": 3, "status": "indexing",
    "change": "updated", "redacted": ["Keys › [old]"], "updated_at": 1768400000,
    "content": "# Figs\n\nRipe.\n",
    "outline": [{"headings": ["Figs", "[When]"], "redacted": True}, {"headings": [], "redacted": False}],
}  # fmt: skip
ANSWERS: dict[tuple[str, str], Any] = {
    ("POST", "/v1/memory/documents"): DOCUMENT,
    ("GET", "/v1/memory/documents"): {"data": [DOCUMENT], "has_more": True},
    ("GET", "/v1/memory/documents/doc_1"): DOCUMENT,
    ("DELETE", "/v1/memory/documents/doc_1"): {"id": "doc_1", "deleted": True, "receipt": "rcpt_1"},
}


run = partial(run_memory, "documents")


def test_files_are_added_under_their_names_with_their_formats(
    proxy: FakeProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "guide.md").write_text("\ufeff# Figs\n\nÄpfel.\n", "utf-8")
    (tmp_path / "notes.txt").write_text("Plain.", "utf-8")
    files = [str(tmp_path / name) for name in ("guide.md", "notes.txt")]
    assert run("add", *files, "--user", "alice", "--project", "apollo") == 0
    sent = [body for method, _, body in proxy.requests if method == "POST"]
    scope = {"user_id": "alice", "project_id": "apollo"}
    assert sent == [
        {"name": "guide.md", "content": "# Figs\n\nÄpfel.\n", "format": "markdown", **scope},
        {"name": "notes.txt", "content": "Plain.", "format": "text", **scope},
    ]
    shown = capsys.readouterr().out
    assert "New version: guide.md doc_1 (version 2, 3 passages)" in shown
    assert "Redacted under: Keys › [old]" in shown


def test_standard_input_needs_a_name(
    proxy: FakeProxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"# Figs")))
    assert run("add", "-") == WRONG_USE
    assert run("add", "-", "--name", "Guide", "--user", "alice") == 0
    assert proxy.requests[-1][2]["name"] == "Guide"
    assert "--name" in capsys.readouterr().err


def test_an_unreadable_file_does_not_stop_the_others(
    proxy: FakeProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / "guide.md").write_text("# Figs", "utf-8")
    files = [str(tmp_path / name) for name in ("none.md", "image.png", "guide.md")]
    assert run("add", *files, "--user", "alice") == WRONG_USE
    assert [body["name"] for _, _, body in proxy.requests] == ["guide.md"]
    errors = " ".join(capsys.readouterr().err.split())
    assert "No such file" in errors
    assert "not text in UTF-8" in errors


def test_name_is_refused_for_several_files(proxy: FakeProxy) -> None:
    assert run("add", "a.md", "b.md", "--name", "Guide") == WRONG_USE
    assert proxy.requests == []


def test_files_with_the_same_name_are_refused(
    proxy: FakeProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("a/README.md", "notes.md", "b/README.md")]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("# Figs", "utf-8")
    assert run("add", *map(str, files), "--user", "alice") == WRONG_USE
    assert "as README.md: add these" in " ".join(capsys.readouterr().err.split())
    assert proxy.requests == []


def test_a_refusal_names_the_file(
    served: tuple[FakeProxy, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "guide.md").write_text("# Figs", "utf-8")
    elsewhere = f"{served[1]}/elsewhere"
    assert run("add", str(tmp_path / "guide.md"), "--user", "alice", "--url", elsewhere) == REFUSED
    assert "Refused (404): guide.md" in capsys.readouterr().err


def test_list_shows_names_versions_and_the_next_page(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("list", "--user", "alice", "--limit", "1") == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("guide[1].md", "doc_1", "(indexing)", "--after doc_1"))
    assert proxy.requests == [("GET", "/v1/memory/documents", {"user_id": "alice", "limit": "1"})]


def test_show_prints_the_headings_or_only_the_text(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("show", "doc_1") == 0
    assert "Figs › [When] (redacted)" in capsys.readouterr().out
    assert run("show", "doc_1", "--content") == 0
    assert capsys.readouterr().out == DOCUMENT["content"]
    assert proxy.requests[-1] == ("GET", "/v1/memory/documents/doc_1", {"include": "content"})


def test_delete_names_the_receipt(proxy: FakeProxy, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("delete", "doc_1", "--user", "alice") == 0
    shown = capsys.readouterr().out
    assert "Deleted: doc_1" in shown
    assert "rcpt_1" in shown


def test_json_is_the_answer_of_the_proxy(proxy: FakeProxy, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "doc_1", "--json") == 0
    assert json.loads(capsys.readouterr().out) == DOCUMENT
