"""Ports for servers that need a fixed port, because they are started again."""

import socket


def reserved() -> socket.socket:
    """Return a socket that reserves a free port of this machine until it is closed: it is bound, and does
    not listen. A server that reuses addresses (Redis and ours do) can listen on it too; a port
    that was merely free a moment ago may be another test's by the time its server has started."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    return keeper
