"""Commit an exchange: the user's words before the answer begins, the answer after it.

Also what a client may refer to before it is on disk: the last responses (`RecentResponses`), and answers that
are being committed (`PendingCommits`). And what a message asks to forget (`Erasure`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from proxy import telemetry
from proxy.domain.core import Prepared, Scope, Turn
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Recorder
from proxy.domain.session import Outcome, StoredExchange
from proxy.http.asgi import Header
from proxy.http.failopen import Failed, FailOpen
from proxy.recall.history import exchange_key, opening
from proxy.wire.dialect import Answer, Dialect

COMMIT_S = 5.0  # a commit may take this long; the request waits for it only as long as its own deadline
ERASE_S = 60.0  # a large user's store takes its time; the answer does not wait for it
WAIT_S = 0.05  # for an earlier answer to be committed; after that the request uses what is on disk
READ_IN_THREAD_BYTES = 64 * 1024

Forget = Callable[[Turn, Sequence[str] | None], Awaitable[tuple[str, ...]]]
"""Erases memories, those that the turn names if there are no ids, and returns the ids of the erased."""


class ExchangeCommit:
    """The commit of one exchange, begun at once. Never raises: FailOpen logs and counts failures."""

    def __init__(self, turn: Turn, recorder: Recorder, fail_open: FailOpen, tasks: asyncio.TaskGroup) -> None:
        self._turn, self._recorder, self._fail_open = turn, recorder, fail_open
        self._begin = tasks.create_task(self._attempt())

    async def committed(self, within_s: float) -> bool:
        """True if the user's words are on disk now, or within the given time."""
        if not self._begin.done():
            await asyncio.wait({self._begin}, timeout=max(0.0, within_s))
        return self._begin.done() and isinstance(self._begin.result(), StoredExchange)

    @property
    def begun(self) -> StoredExchange | None:
        """The exchange that the request began, once it is on disk; None if the request continues one."""
        if self._turn.resumes or not self._begin.done():
            return None
        begun = self._begin.result()
        return begun if isinstance(begun, StoredExchange) else None

    async def finish(self, outcome: Outcome) -> bool:
        """Commit how the exchange ended, now or, if that fails, as soon as possible. False if there is no
        exchange."""
        begun = await self._begin
        if begun is None and self._turn.resumes:  # the step before it may have been on its way to the store
            begun = await self._attempt()
        if not isinstance(begun, StoredExchange):
            return False
        done = await self._fail_open.attempt(
            "finish", lambda: self._recorder.finish(begun, outcome), COMMIT_S
        )
        if isinstance(done, Failed):
            self._recorder.keep(begun, outcome)
        return True

    async def abandon(self) -> None:
        """Remove what was begun: the upstream refused it, and the client, which was promised nothing, will
        ask again."""
        begun = await self._begin
        if isinstance(begun, StoredExchange) and not self._turn.resumes:
            await self._fail_open.attempt("abandon", lambda: self._recorder.abandon(begun), COMMIT_S)

    async def _attempt(self) -> StoredExchange | Failed | None:
        return await self._fail_open.attempt("begin", self._begun, COMMIT_S)

    async def _begun(self) -> StoredExchange | None:
        turn = self._turn
        if not turn.resumes:
            return await self._recorder.begin(turn, exchange_key(turn.session_id, turn.messages))
        begins = opening(turn.messages)
        if not begins and turn.named and turn.continues is None:
            return None  # nothing says which of the session's questions it was
        return await self._recorder.resume(turn, exchange_key(turn.session_id, begins) if begins else None)


class Erasure:
    """What a message asks to forget: erased once the upstream has taken the request, and before the client
    sees its answer, if that is soon."""

    def __init__(self, forget: Forget, fail_open: FailOpen, tasks: asyncio.TaskGroup) -> None:
        self._forget, self._fail_open, self._tasks = forget, fail_open, tasks
        self._task: asyncio.Task[tuple[str, ...] | Failed] | None = None

    def begin(self, turn: Turn | None, prepared: Prepared) -> None:
        """Begin to erase, once, if the turn may write and there is anything to look for."""
        ids = prepared.to_forget
        if self._task is not None or turn is None or not turn.options.write or ids == ():
            return
        attempt = self._fail_open.attempt("forget", lambda: self._forget(turn, ids), ERASE_S)
        self._task = self._tasks.create_task(attempt)

    async def wait(self, within_s: float) -> tuple[str, ...]:
        """Return the ids that are erased now, or within the given time."""
        if self._task is None:
            return ()
        await asyncio.wait({self._task}, timeout=max(0.0, within_s))
        ids = self._task.result() if self._task.done() else ()
        return () if isinstance(ids, Failed) else ids


class RecentResponses:
    """The sessions of this process's last responses, and the memories that their chains were given. The store
    knows all of them, but a client may continue a response before it is on disk."""

    def __init__(self, max_size: int = 1_000) -> None:
        self._known = TTLCache[tuple[str, str, str], tuple[str, frozenset[str]]](max_size)

    def note(self, turn: Turn, response_id: str, shown: Iterable[str] = ()) -> None:
        """Remember that the response was made in the turn's session, with these memories in its input."""
        key = (turn.scope.tenant, turn.scope.user, response_id)
        self._known.put(key, (turn.session_id, turn.shown.union(shown)))

    def find(self, turn: Turn, response_id: str) -> tuple[str | None, frozenset[str]]:
        """Return the session of a response that the turn's user made, and the memories that the chain up to
        it was given."""
        return self._known.get((turn.scope.tenant, turn.scope.user, response_id)) or (None, frozenset())


class PendingCommits:
    """Answers that clients have and that are being committed, by session. A request that brings nothing of
    its conversation reads it from the disk, and waits some milliseconds for the answer before it. Answers of
    other processes are not waited for."""

    def __init__(self) -> None:
        self._pending: dict[tuple[Scope, str], set[asyncio.Event]] = {}

    @contextmanager
    def answered(self, turn: Turn) -> Iterator[None]:
        """The client has the turn's answer; at the end of the block it is on disk."""
        key, done = (turn.scope, turn.session_id), asyncio.Event()
        pending = self._pending.setdefault(key, set())
        pending.add(done)
        try:
            yield
        finally:
            done.set()
            pending.discard(done)
            if not pending:
                self._pending.pop(key, None)

    async def wait(self, turn: Turn, within_s: float) -> None:
        """Wait until the answers in the turn's session are on disk, if the turn needs them."""
        pending = self._pending.get((turn.scope, turn.session_id))
        if not pending or not (turn.standalone or turn.continues):
            return
        with suppress(TimeoutError):  # the request's deadline takes precedence
            async with asyncio.timeout(max(0.0, min(within_s, WAIT_S))):
                for done in tuple(pending):
                    await done.wait()


async def read_answer(
    headers: Sequence[Header], chunks: Sequence[bytes], dialect: Dialect, *, cut: bool = False
) -> Answer:
    """Return the text of a relayed answer; long ones are read in a thread. `cut`: the copy is incomplete."""
    decoded = [(name.lower(), value.decode("latin-1")) for name, value in headers]
    content_type = next((value for name, value in decoded if name == b"content-type"), "")
    encoding = ",".join(value for name, value in decoded if name == b"content-encoding")
    read = partial(dialect.answer, chunks, content_type, encoding, cut=cut)
    is_long = encoding.strip() not in ("", "identity") or sum(map(len, chunks)) > READ_IN_THREAD_BYTES
    answer = await asyncio.to_thread(read) if is_long else read()
    if answer.unread:
        telemetry.log.warning("answer.unread", reason=answer.unread, encoding=encoding[:40])
    return answer
