"""Silent peers are asked whether they are there: the upstream, and whoever asks the proxy."""

import socket
from contextlib import closing

from proxy.app.server import bind
from proxy.domain.operating_system import IDLE_S, INTERVAL_S, PROBES
from proxy.upstream.client import Upstream
from tests.support.upstream import ScriptedUpstream


def asks(connection: socket.socket) -> tuple[int, ...]:
    """Whether the kernel asks, after how long, how often."""
    numbers = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    on = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return on, *(connection.getsockopt(socket.IPPROTO_TCP, number) for number in numbers)


async def test_a_silent_upstream_is_asked_whether_it_is_there() -> None:
    async with ScriptedUpstream() as scripted, Upstream(scripted.url) as upstream:
        with await upstream.open("GET", b"/v1/models", []) as opened:
            assert (transport := opened.connection.transport) is not None
            assert asks(transport.get_extra_info("socket")) == (1, IDLE_S, INTERVAL_S, PROBES)


def test_a_silent_client_is_asked_whether_it_is_there() -> None:
    with (
        closing(bind("127.0.0.1", 0)) as listener,
        closing(socket.create_connection(listener.getsockname())),
        closing(listener.accept()[0]) as accepted,
    ):
        assert asks(accepted) == (1, IDLE_S, INTERVAL_S, PROBES)


def test_what_a_peer_does_not_take_yet_ends_nothing() -> None:
    # A reader may pause for as long as it likes, and so may a server that is busy with another's request.
    with closing(bind("127.0.0.1", 0)) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
