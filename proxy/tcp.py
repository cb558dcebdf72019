"""Sockets of this process: TCP keep-alive, and how many files may be open.

Keep-alive detects a peer whose machine, or whose way to us, is gone without a word.

Without it an answer that a model thinks about for minutes is lost where a NAT gateway forgets silent
connections (cloud providers' do after four to six minutes), and a client that vanished keeps its upstream
at work until the timeout. OpenAI's own clients do the same.

The kernel asks only a silent peer. One that does not read (a slow client, a server that is busy with
another's request) is not silent: its kernel answers.
"""

import socket
import sys

IDLE_S = 60  # of silence, before the peer's kernel is asked whether it is there
BETWEEN_S = 10
QUESTIONS = 6  # without an answer: the connection ends


def ask_when_silent(connection: socket.socket) -> None:
    """Have the kernel end the connection two minutes after it last heard of the peer. What a listener accepts
    has this from the listener. Of the numbers, a platform is told those that it knows."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", IDLE_S),
        ("TCP_KEEPINTVL", BETWEEN_S),
        ("TCP_KEEPCNT", QUESTIONS),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


MOST_FILES = 65_536  # enough for 30,000 connections; some systems allow a billion, which slows down each fork


def raise_file_limit() -> int | None:
    """Raise the soft limit of open files as far as the hard one allows; return it, None where there is none.

    A shell starts programs with 1,024; each connection is a file, and so is each to the upstream."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft == resource.RLIM_INFINITY:
        return None
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # a sandbox that forbids it
            return soft
    return max(soft, wanted)
