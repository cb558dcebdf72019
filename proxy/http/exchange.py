"""Commit an exchange: the user's words before the answer begins, the answer after it.

Also what a client may refer to before it is on disk: the last responses (`RecentChains`), and answers that
are being committed (`Settling`).
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from proxy import telemetry
from proxy.domain.core import Scope, Turn
from proxy.domain.limits import TTLCache
from proxy.domain.ports import Recorder
from proxy.domain.session import Outcome, StoredExchange
from proxy.http.asgi import Header
from proxy.http.failopen import Failed, FailOpen
from proxy.recall.history import exchange_key, opening
from proxy.wire.dialect import Answer, Dialect


class RecentChains:
    """The sessions of the last responses of this process, by their owner; the store knows all of them."""

    def __init__(self, limit: int = 1_000) -> None:
        self._sessions = TTLCache[tuple[str, str, str], tuple[str, frozenset[str]]](limit)

    def note(self, turn: Turn, response_id: str, shown: Iterable[str] = ()) -> None:
        """Remember that the response was made in the turn's session, with these memories in its input."""
        made = turn.session_id, turn.shown.union(shown)
        self._sessions.put((turn.scope.tenant, turn.scope.user, response_id), made)

    def session_of(self, turn: Turn, response_id: str) -> str | None:
        """Return the session of a response that the turn's user made."""
        return self._known(turn, response_id)[0]

    def shown(self, turn: Turn, response_id: str) -> frozenset[str]:
        """Return the memories that the chain up to the response was given, as far as this process knows."""
        return self._known(turn, response_id)[1]

    def _known(self, turn: Turn, response_id: str) -> tuple[str | None, frozenset[str]]:
        return self._sessions.get((turn.scope.tenant, turn.scope.user, response_id)) or (None, frozenset())


# ---------------------------------------------------------------- answers being committed
WAIT_S = 0.05  # longer, and the request goes on with what is on disk


class Settling:
    """What was answered in each session and is being written down."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[Scope, str], set[asyncio.Event]] = {}

    @contextmanager
    def answered(self, turn: Turn) -> Iterator[None]:
        """The client has the turn's answer; at the end of the block it is on disk."""
        key, done = (turn.scope, turn.session_id), asyncio.Event()
        under_way = self._under_way.setdefault(key, set())
        under_way.add(done)
        try:
            yield
        finally:
            done.set()
            under_way.discard(done)
            if not under_way:
                self._under_way.pop(key, None)

    async def settled(self, turn: Turn, within_s: float) -> None:
        """Wait until what was answered in the turn's session is on disk, if the turn needs to know of it."""
        under_way = self._under_way.get((turn.scope, turn.session_id))
        if not under_way or not (turn.standalone or turn.continues):
            return
        try:
            async with asyncio.timeout(max(0.0, min(within_s, WAIT_S))):
                for done in tuple(under_way):
                    await done.wait()
        except TimeoutError:
            pass  # its deadline is dearer to the request


# ---------------------------------------------------------------- the commit
COMMIT_S = 5.0  # a commit may take this long; the request waits for it only as long as its own deadline
PARSE_IN_THREAD_BYTES = 64 * 1024


class Writing:
    """One exchange being written down, or its answer going on. Never raises: what fails is logged, and
    counted by FailOpen."""

    def __init__(self, turn: Turn, recorder: Recorder, fail_open: FailOpen, tasks: asyncio.TaskGroup) -> None:
        self._turn, self._recorder, self._fail_open = turn, recorder, fail_open
        self._begin = tasks.create_task(self._attempt())

    async def _attempt(self) -> StoredExchange | Failed | None:
        turn, recorder = self._turn, self._recorder
        return await self._fail_open.attempt("begin", lambda: _begun(turn, recorder), COMMIT_S)

    async def committed(self, within_s: float) -> bool:
        """True if the user's words are on disk now, or within the given time."""
        if not self._begin.done():
            await asyncio.wait({self._begin}, timeout=max(0.0, within_s))
        return self._begin.done() and isinstance(self._begin.result(), StoredExchange)

    @property
    def begun(self) -> StoredExchange | None:
        """The exchange that the request began, once that is on disk; None where it goes on with one."""
        if self._turn.resumes or not self._begin.done():
            return None
        begun = self._begin.result()
        return begun if isinstance(begun, StoredExchange) else None

    async def finish(self, outcome: Outcome) -> bool:
        """Commit how the exchange ended, now or, where that fails, as soon as it can be. False if there is
        none to end."""
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
        """Take back what was begun: the upstream refused it, and the client, which was promised nothing, will
        ask again."""
        begun = await self._begin
        if isinstance(begun, StoredExchange) and not self._turn.resumes:
            await self._fail_open.attempt("abandon", lambda: self._recorder.abandon(begun), COMMIT_S)


async def _begun(turn: Turn, recorder: Recorder) -> StoredExchange | None:
    if not turn.resumes:
        return await recorder.begin(turn, exchange_key(turn.session_id, turn.messages))
    begins = opening(turn.messages)
    if not begins and turn.named and turn.continues is None:
        return None  # nothing says which of the session's questions it was
    return await recorder.resume(turn, exchange_key(turn.session_id, begins) if begins else None)


async def read_answer(
    headers: Sequence[Header], chunks: Sequence[bytes], dialect: Dialect, *, cut: bool = False
) -> Answer:
    """Return the text of a relayed answer; long ones are read in a thread. `cut`: the copy is incomplete."""
    told = [(name.lower(), value.decode("latin-1")) for name, value in headers]
    content_type = next((value for name, value in told if name == b"content-type"), "")
    encoding = ",".join(value for name, value in told if name == b"content-encoding")
    read = partial(dialect.answer, chunks, content_type, encoding, cut=cut)
    is_long = encoding.strip() not in ("", "identity") or sum(map(len, chunks)) > PARSE_IN_THREAD_BYTES
    answer = await asyncio.to_thread(read) if is_long else read()
    if answer.unread:
        telemetry.log.warning("answer.unread", reason=answer.unread, encoding=encoding[:40])
    return answer
