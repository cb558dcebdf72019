"""Requests to the operating system: TCP keep-alive, open files, thread priority, freed memory."""

import ctypes
import os
import socket
import sys
import threading
from contextlib import suppress

IDLE_S = 60  # of silence, before the kernel probes the peer
INTERVAL_S = 10
PROBES = 6  # unanswered, then the connection ends


def enable_keep_alive(connection: socket.socket) -> None:
    """Have the kernel end the connection two minutes after it last heard of the peer.

    Detects a peer that disappeared without closing its connection: otherwise an answer that a model thinks
    about for minutes is lost where a NAT gateway drops idle connections (cloud providers' do after four to
    six minutes), and a client that vanished keeps its upstream busy until the timeout. OpenAI's clients do
    the same. The kernel probes only a silent peer: a slow client still acknowledges. Accepted connections
    inherit this from their listener.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", IDLE_S), ("TCP_KEEPINTVL", INTERVAL_S), ("TCP_KEEPCNT", PROBES)):
        if hasattr(socket, option):  # platforms differ
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


MOST_FILES = 65_536  # enough for 30,000 connections; some systems allow a billion, which slows down each fork


def raise_file_limit() -> int | None:
    """Raise the soft limit of open files up to the hard one; return it, None if there is none.

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


def lower_thread_priority() -> None:
    """Give the event loop's thread precedence over the calling one where processors are short (Linux only).

    At 32 streams on one processor with recalls in between, a chunk's median delay falls from 14 to 4 ms.
    """
    with suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


_ARENA_MAX = -8  # glibc's name for mallopt


def limit_arenas() -> None:
    """Let all threads allocate from two heaps. By default each has its own, and does not use what is freed in
    another: 5 MB after the start."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


def trim_heap() -> None:
    """Return freed memory to the system: 8 MB after a table of tokens was loaded."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
