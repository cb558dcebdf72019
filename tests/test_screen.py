"""The opening screen: what it says of where things are."""

from contextlib import closing
from typing import Any

import pytest

from proxy import __version__
from proxy.app.server import address_of, bind, open_with, opening_screen
from proxy.config import load
from tests.storage.recording import recorded


def data_line(**settings: Any) -> str:
    screen = opening_screen(load(None, {}, settings), "http://127.0.0.1:8080", None)
    return next(line.removeprefix("  Data        ") for line in screen.splitlines() if "Data " in line)


def test_the_screen_says_which_directory_holds_the_data() -> None:
    assert data_line(storage={"data_dir": "/var/lib/memory"}) == "/var/lib/memory"


def test_an_address_that_cannot_be_asked_is_shown_as_one_that_can() -> None:
    with closing(bind("0.0.0.0", 0)) as listener:
        origin = address_of(listener)
    assert origin.startswith("http://127.0.0.1:")
    settings = load(None, {}, {"server": {"host": "0.0.0.0"}})
    listening = opening_screen(settings, origin, None).splitlines()[3]
    assert listening.endswith("(and on every other address of this machine)")
    assert "other address" not in opening_screen(load(None, {}, {}), origin, None)


def test_a_log_of_json_begins_with_a_line_of_its_own_and_no_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load(None, {}, {"logging": {"format": "json"}, "storage": {"data_dir": "/var/lib/memory"}})
    lines = recorded(monkeypatch, lambda facts: facts)
    open_with(settings, "http://127.0.0.1:8080", "package")
    assert capsys.readouterr().out == ""
    ((event, told),) = lines
    assert (event, told["address"], told["version"]) == (
        "process.started",
        "http://127.0.0.1:8080",
        __version__,
    )
    assert (told["upstream"], told["data"], told["identity"]) == ("scripted", "/var/lib/memory", "open")


def test_people_get_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    open_with(load(None, {}, {}), "http://127.0.0.1:8080", "package")
    shown = capsys.readouterr()
    assert "Listening   http://127.0.0.1:8080/v1" in shown.out
    assert shown.err == ""


def test_a_missing_judge_is_shown() -> None:
    settings = load(None, {}, {})
    assert "Judge" not in opening_screen(settings, "http://127.0.0.1:8080", "installer")
    assert "Judge       OFF" in opening_screen(settings, "http://127.0.0.1:8080", "installer", judges=False)
