"""`memory-proxy memory …` against a proxy in miniature, by command line."""

import argparse
import itertools
import json
from collections.abc import Iterator

import pytest

from proxy.client_cli import NO_PROXY, REFUSED, WRONG_USE, add_memory_parser
from tests.demo.fake_proxy import FakeProxy
from tests.demo.serving import serving_in_thread


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeProxy, str]]:
    fake = FakeProxy()
    with serving_in_thread(fake.app()) as origin:
        yield fake, origin


@pytest.fixture
def proxy(served: tuple[FakeProxy, str], monkeypatch: pytest.MonkeyPatch) -> FakeProxy:
    """An empty proxy, at the address that the commands use by themselves."""
    fake, origin = served
    fake.memories.clear()
    fake.requests.clear()
    fake.ids = itertools.count(1)
    monkeypatch.setenv("MEMORY_PROXY_URL", origin)
    monkeypatch.setenv("COLUMNS", "80")
    return fake


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_memory_parser(parser.add_subparsers())
    args = parser.parse_args(["memory", *words])
    status: int = args.func(args)
    return status


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


def test_list_says_how_to_see_more(proxy: FakeProxy, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        proxy.store("alice", f"Fact {number}")
    assert run("list", "--user", "alice", "--limit", "2") == 0
    assert "2 of 3; for more: --after mem_0002" in capsys.readouterr().out


def test_an_empty_list_is_said_in_words(proxy: FakeProxy, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--user", "nobody") == 0
    assert "Nothing is remembered" in capsys.readouterr().out


def test_json_is_the_proxys_answer(proxy: FakeProxy, capsys: pytest.CaptureFixture[str]) -> None:
    proxy.store("alice", "用户住在上海")
    assert run("list", "--user", "alice", "--json") == 0
    out = capsys.readouterr().out
    assert json.loads(out)["data"][0]["content"] == "用户住在上海"
    assert "用户住在上海" in out


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
        "limit": 10,
    }


def test_add_stores_and_get_shows_it_with_its_history(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("add", "User is left-handed", "--user", "alice") == 0
    assert "Stored: mem_0001" in capsys.readouterr().out
    assert run("get", "mem_0001") == 0
    shown = capsys.readouterr().out
    assert "User is left-handed" in shown
    assert "created by api: as it was" in shown


def test_forgetting_one_does_not_ask(proxy: FakeProxy, capsys: pytest.CaptureFixture[str]) -> None:
    memory_id = proxy.store("alice", "x")["id"]
    kept = proxy.store("alice", "y")["id"]
    assert run("forget", memory_id) == 0
    assert list(proxy.memories) == [kept]
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


def test_without_a_terminal_nothing_is_forgotten_unless_yes_is_said(
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
def test_forget_refuses_to_guess_what_is_meant(proxy: FakeProxy, words: tuple[str, ...]) -> None:
    assert run(*words) == WRONG_USE
    assert proxy.requests == []


def test_the_proxys_own_words_are_shown_when_it_refuses(
    proxy: FakeProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("list") == REFUSED
    assert "Refused (400): Say whose memories" in capsys.readouterr().err
    assert run("forget", "mem_none") == REFUSED
    assert "Refused (404): No memory with id 'mem_none'." in capsys.readouterr().err


def test_an_id_with_odd_characters_stays_one_path_segment(proxy: FakeProxy) -> None:
    proxy.store("alice", "x")
    assert run("forget", "../memory?user_id=alice") == REFUSED
    assert len(proxy.memories) == 1


def test_no_proxy_gives_one_line_that_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--user", "alice", "--url", "http://127.0.0.1:9") == NO_PROXY
    error = " ".join(capsys.readouterr().err.split())
    assert "No memory-proxy answers at http://127.0.0.1:9" in error
    assert "memory-proxy serve" in error


@pytest.mark.parametrize("words", [("list", "--limit", "0"), ("list", "--type", "x"), ("search",), ()])
def test_wrong_use_is_refused_by_the_parser(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as left:
        run(*words)
    assert left.value.code == WRONG_USE
