"""The write half of one request: the user's words committed before the answer begins, the answer after it."""

import asyncio
from collections.abc import Sequence

from proxy.domain import Outcome, Turn
from proxy.edge.failopen import Failed, FailOpen
from proxy.edge.reply import Header
from proxy.pipeline.session import exchange_key
from proxy.ports import Recorder
from proxy.wire.dialect import Answer, Dialect

COMMIT_S = 5.0  # a commit may take this long; the request waits for it only as long as its own deadline
PARSE_IN_THREAD_BYTES = 64 * 1024


class Writing:
    """One exchange being written down. Never raises: what fails is logged and counted by FailOpen."""

    def __init__(self, turn: Turn, recorder: Recorder, fail_open: FailOpen, tasks: asyncio.TaskGroup) -> None:
        self._recorder, self._fail_open = recorder, fail_open
        key = exchange_key(turn.session_id, turn.messages)
        self._begin = tasks.create_task(
            fail_open.attempt("begin", lambda: recorder.begin(turn, key), COMMIT_S)
        )

    async def committed(self, within_s: float) -> bool:
        """True if the user's words are on disk now, or within the given time."""
        if not self._begin.done():
            await asyncio.wait({self._begin}, timeout=max(0.0, within_s))
        return self._begin.done() and not isinstance(self._begin.result(), Failed)

    async def finish(self, outcome: Outcome) -> None:
        """Commit how the exchange ended, now or, where that fails, as soon as it can be."""
        begun = await self._begin
        if isinstance(begun, Failed):
            return
        done = await self._fail_open.attempt(
            "finish", lambda: self._recorder.finish(begun, outcome), COMMIT_S
        )
        if isinstance(done, Failed):
            self._recorder.keep(begun, outcome)

    async def abandon(self) -> None:
        """Take the exchange back: the upstream refused it, and the client will ask again."""
        begun = await self._begin
        if not isinstance(begun, Failed):
            await self._fail_open.attempt("abandon", lambda: self._recorder.abandon(begun), COMMIT_S)


async def read_answer(headers: Sequence[Header], chunks: Sequence[bytes], dialect: Dialect) -> Answer:
    """Return what was said in a relayed answer; long ones are read in a thread."""
    told = [(name.lower(), value.decode("latin-1")) for name, value in headers]
    content_type = next((value for name, value in told if name == b"content-type"), "")
    encoding = ",".join(value for name, value in told if name == b"content-encoding")
    if sum(map(len, chunks)) > PARSE_IN_THREAD_BYTES:
        return await asyncio.to_thread(dialect.answer, chunks, content_type, encoding)
    return dialect.answer(chunks, content_type, encoding)
