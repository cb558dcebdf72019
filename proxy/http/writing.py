"""The write half of one request: the user's words committed before the answer begins, the answer after it."""

import asyncio
from collections.abc import Sequence
from functools import partial

from proxy import telemetry
from proxy.domain.core import Begun, Outcome, Turn
from proxy.domain.ports import Recorder
from proxy.http.failopen import Failed, FailOpen
from proxy.http.reply import Header
from proxy.recall.session import exchange_key, opening
from proxy.wire.dialect import Answer, Dialect

COMMIT_S = 5.0  # a commit may take this long; the request waits for it only as long as its own deadline
PARSE_IN_THREAD_BYTES = 64 * 1024


class Writing:
    """One exchange being written down, or its answer going on. Never raises: what fails is logged, and
    counted by FailOpen."""

    def __init__(self, turn: Turn, recorder: Recorder, fail_open: FailOpen, tasks: asyncio.TaskGroup) -> None:
        self._turn, self._recorder, self._fail_open = turn, recorder, fail_open
        self._begin = tasks.create_task(self._attempt())

    async def _attempt(self) -> Begun | Failed | None:
        turn, recorder = self._turn, self._recorder
        return await self._fail_open.attempt("begin", lambda: _begun(turn, recorder), COMMIT_S)

    async def committed(self, within_s: float) -> bool:
        """True if the user's words are on disk now, or within the given time."""
        if not self._begin.done():
            await asyncio.wait({self._begin}, timeout=max(0.0, within_s))
        return self._begin.done() and isinstance(self._begin.result(), Begun)

    @property
    def begun(self) -> Begun | None:
        """The exchange that the request began, once that is on disk; None where it goes on with one."""
        if self._turn.resumes or not self._begin.done():
            return None
        begun = self._begin.result()
        return begun if isinstance(begun, Begun) else None

    async def finish(self, outcome: Outcome) -> bool:
        """Commit how the exchange ended, now or, where that fails, as soon as it can be. False if there is
        none to end."""
        begun = await self._begin
        if begun is None and self._turn.resumes:  # the step before it may have been on its way to the store
            begun = await self._attempt()
        if not isinstance(begun, Begun):
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
        if isinstance(begun, Begun) and not self._turn.resumes:
            await self._fail_open.attempt("abandon", lambda: self._recorder.abandon(begun), COMMIT_S)


async def _begun(turn: Turn, recorder: Recorder) -> Begun | None:
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
