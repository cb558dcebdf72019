"""Memory's work around a request, none of which can fail it.

A request must succeed even if memory fails, so all memory work of the request path runs inside
`FailOpen.attempt`: it has a deadline, and every error becomes a `Failed` with a reason for the response
header, a metric, and a log line without content (the first of its kind, then one a minute). An operation that
keeps failing is skipped for a moment (circuit breaker), so that a hanging store does not cost every request
its deadline. Errors caused by one user's rows do not count.

`RecallLimiter` limits how many turns memory works for at once (a bulkhead). In a burst, first come, first
served would let every turn wait until its deadline has almost passed. So the latest is next: it has the most
time left, and those that cannot be served in time cost nothing.

An exchange is committed in two steps (`ExchangeCommit`): the user's words before the answer begins, the
answer after it. What a client may refer to before it is on disk: the last responses (`RecentResponses`), and
answers that are being committed (`PendingCommits`). `Erasure` is what a message asks to forget.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from proxy import telemetry
from proxy.domain.core import Prepared, Reason, Scope, Turn
from proxy.domain.errors import DamagedRow, EmbeddingFailed, StoreError
from proxy.domain.limits import CircuitBreaker, TTLCache
from proxy.domain.session import Outcome, StoredExchange
from proxy.http.asgi import Header
from proxy.http.turns import exchange_key, opening
from proxy.learn.recorder import ExchangeRecorder
from proxy.wire.dialect import Answer, Dialect

TURNS_AT_ONCE = 6  # more keep no more threads busy, and in a burst make all of them late


class RecallLimiter:
    """A semaphore that serves the latest first, as an async context manager. Belongs to one event loop."""

    def __init__(self, slots: int = TURNS_AT_ONCE) -> None:
        self._free = slots
        self._waiting: list[asyncio.Future[None]] = []  # in the order in which they came

    async def __aenter__(self) -> None:
        """Wait for a slot."""
        if self._free:
            self._free -= 1
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.cancelled():
                self._waiting.remove(mine)
            else:  # it was given the slot and cancelled at the same moment
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        if waiting := next((w for w in reversed(self._waiting) if not w.done()), None):
            self._waiting.remove(waiting)
            waiting.set_result(None)
        else:
            self._free += 1


# ---------------------------------------------------------------- fail-open
T = TypeVar("T")

TRIP_AFTER = 3  # failures in a row
TRIP_SILENCE_S = 1.0  # and no success for so long: a short burst is not a hang
OPEN_S = 2.0  # until the operation is tried again


@dataclass(frozen=True, slots=True)
class Failed:
    """Memory work that was skipped or failed, and why."""

    reason: Reason


class FailOpen:
    """Runs memory work so that nothing it does can harm the request."""

    def __init__(self, steady: Callable[[], float], metrics: telemetry.Metrics) -> None:
        """`steady`: a monotonic clock; changes of the wall clock must not extend an open breaker."""
        self._steady, self._metrics = steady, metrics
        self._breakers: dict[str, CircuitBreaker] = {}
        self._reasons: dict[str, Reason] = {}  # of the failures that opened them
        self._seldom = telemetry.ThrottledLog(steady)

    async def attempt(
        self,
        operation: str,
        work: Callable[[], Awaitable[T]],
        deadline_s: float,
        limiter: RecallLimiter | None = None,
    ) -> T | Failed:
        """Return what `work` returns within the deadline, else Failed. Cancellation passes through.

        `limiter`: the work first waits for a slot of it. If none is free in time the reason is BUSY, which
        the circuit breaker does not count: it says nothing about the operation."""
        breaker = self._breaker(operation)
        if breaker.is_open:
            return Failed(self._reasons[operation])
        timeout = asyncio.timeout(max(0.0, deadline_s))
        begun, counts = False, True  # counts: the failure may concern other requests as well
        try:
            async with timeout, limiter or nullcontext():
                begun = True
                with telemetry.span(f"memory.{operation}"):
                    result = await work()
        except TimeoutError as error:
            if not begun:
                failed, counts = Failed(Reason.BUSY), False
            elif timeout.expired():
                failed = Failed(Reason.DEADLINE)
            else:  # a timeout of the work's own
                failed = self._note(operation, Reason.ERROR, error)
        except StoreError as error:
            failed = self._note(operation, Reason.STORE_UNAVAILABLE, error)
            counts = not isinstance(error, DamagedRow)
        except EmbeddingFailed as error:
            failed = self._note(operation, Reason.EMBEDDING_FAILED, error)
        except Exception as error:  # noqa: BLE001  memory's fail-open: see the module's docstring
            failed = self._note(operation, Reason.MEMORY_ERROR, error)
        else:
            breaker.succeeded()
            return result
        self._count(operation, failed)
        if counts and breaker.failed():
            self._reasons[operation] = failed.reason
        return failed

    @property
    def resting(self) -> Reason | None:
        """The reason of an operation that is skipped now, None while all work."""
        return next((self._reasons[name] for name, each in self._breakers.items() if each.is_open), None)

    def _breaker(self, operation: str) -> CircuitBreaker:
        if operation not in self._breakers:
            self._breakers[operation] = CircuitBreaker(
                OPEN_S, trip_after=TRIP_AFTER, quiet_s=TRIP_SILENCE_S, clock=self._steady
            )
        return self._breakers[operation]

    def _note(self, operation: str, reason: Reason, error: Exception) -> Failed:
        self._seldom.warning(
            "memory.failed", operation=operation, reason=reason.value, error=type(error).__name__
        )
        return Failed(reason)

    def _count(self, operation: str, failed: Failed) -> None:
        self._metrics.failures.labels(operation, failed.reason.value).inc()
        if failed.reason in (Reason.DEADLINE, Reason.BUSY):
            self._seldom.warning(f"memory.{failed.reason.value}", operation=operation)


# ---------------------------------------------------------------- commits
COMMIT_S = 5.0  # a commit may take this long; the request waits for it only as long as its own deadline
ERASE_S = 60.0  # a large user's store takes its time; the answer does not wait for it
WAIT_S = 0.05  # for an earlier answer to be committed; after that the request uses what is on disk
READ_IN_THREAD_BYTES = 64 * 1024

Forget = Callable[[Turn, Sequence[str] | None], Awaitable[tuple[str, ...]]]
"""Erases memories, those that the turn names if there are no ids, and returns the ids of the erased."""


class ExchangeCommit:
    """The commit of one exchange, begun at once. Never raises: FailOpen logs and counts failures."""

    def __init__(
        self, turn: Turn, recorder: ExchangeRecorder, fail_open: FailOpen, tasks: asyncio.TaskGroup
    ) -> None:
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
