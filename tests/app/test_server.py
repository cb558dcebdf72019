"""The listener, and the opening screen: where things are, and what is off."""

import socket
from contextlib import closing

from proxy import __version__
from proxy.app.server import announce, bind
from proxy.config import load
from proxy.domain.limits import IDLE_S, INTERVAL_S, PROBES
from proxy.upstream.client import Upstream
from tests.storage.recording import recorded
from tests.support.upstream import ScriptedUpstream

ORIGIN = "http://127.0.0.1:8080"


def test_people_get_the_screen_and_collectors_one_line_of_json(monkeypatch, capsys):
    announce(load(None, {}, {}), ORIGIN)
    shown = capsys.readouterr()
    assert f"Listening   {ORIGIN}/v1" in shown.out
    assert shown.err == ""
    lines = recorded(monkeypatch, lambda facts: facts)
    announce(load(None, {}, {"logging": {"format": "json"}, "storage": {"data_dir": "/d"}}), ORIGIN)
    assert capsys.readouterr().out == ""
    ((event, facts),) = lines
    assert (event, facts["address"], facts["version"]) == ("process.started", ORIGIN, __version__)
    assert (facts["upstream"], facts["data"], facts["identity"]) == ("scripted", "/d", "open")


def keep_alive(connection: socket.socket) -> tuple[int, ...]:
    numbers = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    on = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return on, *(connection.getsockopt(socket.IPPROTO_TCP, number) for number in numbers)


async def test_silent_clients_and_upstreams_are_probed_and_slow_readers_are_not_cut():
    probed = (1, IDLE_S, INTERVAL_S, PROBES)
    async with ScriptedUpstream() as scripted, Upstream(scripted.url) as upstream:
        with await upstream.open("GET", b"/v1/models", []) as opened:
            assert (transport := opened.connection.transport) is not None
            assert keep_alive(transport.get_extra_info("socket")) == probed
    with (
        closing(bind("127.0.0.1", 0)) as listener,
        closing(socket.create_connection(listener.getsockname())),
        closing(listener.accept()[0]) as accepted,
    ):
        assert keep_alive(accepted) == probed
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
