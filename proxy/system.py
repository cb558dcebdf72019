"""What this process asks of its operating system: TCP keep-alive, open files, thread priority, freed memory.

Keep-alive detects a peer that disappeared without closing its connection. Without it, an answer that a model
thinks about for minutes is lost where a NAT gateway drops idle connections (cloud providers' do after four to
six minutes), and a client that vanished keeps its upstream busy until the timeout. OpenAI's own clients do
the same. The kernel probes only a silent peer: one that does not read (a slow client) still acknowledges.
"""

import ctypes
import os
import socket
import sys
import threading
from contextlib import suppress

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


NICENESS = 10


def step_back() -> None:
    """Let the calling thread go after the event loop's where processors are short (Linux; elsewhere
    nothing). Memory may be late, a chunk of somebody's answer must not be.

    At 32 streams on one processor with recalls in between: a chunk's way 14 → 4 ms at the median.
    """
    with suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


_ARENA_MAX = -8  # glibc's name for mallopt


def keep_few_arenas() -> None:
    """Let all threads allocate from two heaps. By default each has its own, and what is freed in one is not
    used by the others: 5 MB after the start."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


def give_back() -> None:
    """Return freed memory to the system: 8 MB after a table of tokens was loaded."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
