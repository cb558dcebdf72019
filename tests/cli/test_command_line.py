"""The command line as a person meets it: a real process, its screen, its exit."""

import asyncio
import json
import os
import re
import shlex
import signal
from pathlib import Path

import httpx2
import pytest

from proxy import COMMIT_VARIABLE
from proxy.app.factories import refuse_open_network
from proxy.cli import opened_stores, settings_of
from proxy.cli.main import main
from proxy.config import CONFIG_FILE, PREFIX, load
from proxy.domain.core import MemoryFilter
from proxy.domain.errors import ConfigError
from tests.e2e.conftest import until
from tests.support.process import COMMAND, serving_process

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """The command leaves its flags in the environment for its workers; a test must not inherit them."""
    for name in [n for n in os.environ if n.startswith(("MEMORY_PROXY", PREFIX))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", os.environ.copy())


async def test_serve_without_configuration_answers_remembers_and_extracts_at_its_end(tmp_path):
    def chat(text):
        message = {"role": "user", "content": text}
        of_alice = {"memory_context": {"user_id": "alice"}}
        return {"model": "scripted-demo", "messages": [message], **of_alice}

    async with serving_process(tmp_path / "data") as served, httpx2.AsyncClient(timeout=90) as http:
        url = f"{served.origin}/v1/chat/completions"
        answer = await http.post(url, json=chat("Please remember that I like figs."))
        assert answer.headers["x-memory-store"] == "queued"

        async def stored():
            listed = await http.get(f"{served.origin}/v1/memory?user_id=alice")
            data: list[object] = listed.json()["data"]
            return data

        assert len(await until(stored)) == 1
        for stream in (False, True):
            body = {**chat(""), "input": "What fruit do I like?", "stream": stream}
            del body["messages"]
            response = await http.post(f"{served.origin}/v1/responses", json=body)
            assert response.headers["x-memory-status"] == "injected"
            assert "From memory:" in response.text
            assert ("event: response.completed" in response.text) == stream
        await http.post(url, json=chat("I'm allergic to peanuts."))
        served.signal(signal.SIGTERM)
        assert await served.ended() == 0
    async with opened_stores(load(None, {}, {"storage": {"data_dir": tmp_path / "data"}})) as stores:
        page = await stores.memories.list(MemoryFilter(tenant="default", user="alice"), limit=9)
    assert any("allergic to peanuts" in memory.content for memory in page.items)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "--host", "0.0.0.0"], "MEMORY_PROXY__IDENTITY__MODE=keys"),
        (["serve", "--upstream", "http://127.0.0.1:1/v1/chat/completions"], "leave out /chat/completions"),
        (["serve", "--port", "70000"], "server.port: Input should be less than or equal to 65535"),
        (["serve", "--config", "/absent.yaml"], "cannot read the configuration"),
        (["demo", "--upstream", "http://127.0.0.1:1/v1"], "--model"),
    ],
)
def test_a_wrong_command_says_what_to_do(arguments, says, capsys):
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
ENVIRONMENT = re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^ENV (.+)$", DOCKERFILE, re.MULTILINE)))


def shipped_commands() -> dict[str, list[str]]:
    """Return the command lines that are started on other machines, without the program's name."""
    entry = re.search(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE)
    assert entry
    of_platform = (ROOT / "Procfile").read_text("utf-8").removeprefix("web: ").replace("$PORT", "0")
    return {"Dockerfile": json.loads(entry[1])[1:], "Procfile": shlex.split(of_platform)[1:]}


@pytest.mark.parametrize("file", ["Dockerfile", "Procfile"])
def test_what_is_shipped_for_other_machines_refuses_mode_open(file, capsys, monkeypatch):
    started: list[str] = []
    modes = started.append
    monkeypatch.setattr("proxy.app.server.serve", lambda settings: modes(settings.identity.mode) or 0)
    command = shipped_commands()[file]
    for name, value in ENVIRONMENT if file == "Dockerfile" else []:
        monkeypatch.setenv(name, value)
    assert main(command) == 2
    assert "refusing to listen on 0.0.0.0 in identity mode `open`" in capsys.readouterr().err
    monkeypatch.setenv(f"{PREFIX}IDENTITY__MODE", "keys")
    assert main(command) == 0
    assert started == ["keys"]


def test_the_image_sets_the_data_directory_of_every_command_and_has_a_user_of_its_own():
    # `docker exec NAME memory-proxy doctor` must see what `serve` writes.
    assert ("MEMORY_PROXY__STORAGE__DATA_DIR", "/data") in ENVIRONMENT
    assert (COMMIT_VARIABLE, "$COMMIT") in ENVIRONMENT
    of_debian = "root daemon bin sys sync games man lp mail news uucp proxy www-data backup list nobody"
    (made,) = re.findall(r"useradd \S+ (\w+)", DOCKERFILE)
    assert made not in of_debian.split()
    assert f"\nUSER {made}\n" in DOCKERFILE


@pytest.mark.parametrize("file", sorted((ROOT / "config").glob("*.yaml")), ids=lambda file: file.name)
def test_no_shipped_configuration_opens_a_network_address(file):
    if file.name != "compose.yaml":  # the settings of its replicas are in their environment
        refuse_open_network(load(file, {}))
        assert not load(file, {}).server.allow_open
    assert "--allow-open" not in file.read_text("utf-8")


@pytest.mark.parametrize(
    "command",
    [
        *(
            ["serve"],
            ["doctor"],
            ["keys", "list"],
            ["keys", "create", "--name", "a"],
            ["reembed"],
            ["reindex"],
        ),
        *(["backup", "/absent/copy"], ["receipts"], ["migrate", "--data-dir", "/absent"]),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_command_reads_the_file_that_the_environment_names_unless_one_is_given(
    command, tmp_path, capsys, monkeypatch
):
    """Neither file is there: which one was looked for is in the refusal, which is a configuration's (2)."""
    monkeypatch.setattr("proxy.app.server.serve", lambda settings: 0)
    monkeypatch.setenv(f"{PREFIX}STORAGE__DATA_DIR", str(tmp_path))  # if one does not look, it finds nothing
    monkeypatch.setenv("MEMORY_PROXY_CONFIG", "/absent/named.yaml")
    for given, read in (
        ([], "/absent/named.yaml"),
        (["--config", "/absent/given.yaml"], "/absent/given.yaml"),
    ):
        assert main([*command, *given]) == 2
        assert f"cannot read the configuration {read}" in capsys.readouterr().err


def test_a_port_in_use_is_reported_in_one_line(tmp_path, capsys):
    from proxy.app.server import bind

    with bind("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--port", port, "--data-dir", str(tmp_path)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_doctor_finds_what_is_wrong(tmp_path, capsys):
    assert main(["doctor", "--data-dir", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    for subject in ("settings", "data", "embeddings", "tokens", "upstream"):
        assert subject in printed
    os.environ.clear()
    (tmp_path / "file").write_text("in the way")
    assert main(["doctor", "--data-dir", str(tmp_path / "file"), "--upstream", "http://127.0.0.1:9/v1"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("[!!]") >= 2
    assert "Traceback" not in printed


async def test_the_demo_shows_what_it_promises():
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "demo", "--fast", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(90):
        printed, _ = await process.communicate()
    text = printed.decode()
    assert process.returncode == 0, text
    for shown in ("scripted", "Act 1", "Act 2", "Act 3", "injected", "All 14 checks passed"):
        assert shown in text


def test_the_command_line_wins_over_the_environment_and_the_file(tmp_path, monkeypatch):
    named, given = tmp_path / "named.yaml", tmp_path / "given.yaml"
    named.write_text("storage: {data_dir: /named}\nserver: {port: 1}\n")
    given.write_text("storage: {data_dir: /given}\nserver: {port: 2}\n")
    assert settings_of(None).server.port == 8080
    monkeypatch.setenv(CONFIG_FILE, str(named))
    assert (settings_of(None).server.port, settings_of(given).server.port) == (1, 2)
    assert str(settings_of(given).data_dir) == "/given"
    assert (settings_of(given, "/own").server.port, str(settings_of(given, "/own").data_dir)) == (2, "/own")
    with pytest.raises(ConfigError, match=r"data_dir: names no directory.*\(on the command line\)"):
        settings_of(given, "")  # of an unset variable: not the file's, least of all for a restore
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        settings_of(tmp_path / "absent.yaml")
