"""Ask the upstream again in another form where it refuses what memory or the translation made of a request.

A request that is forwarded as the client sent it is asked once, whatever comes back. One that was changed,
and is refused for a reason that may be its form, is asked again, in few steps and at last without memory; the
order is in upstream/forms.py. All of that happens before the client has a byte of the answer, and the header
`X-Memory-Retried` names each step.
"""

import asyncio
import re
from dataclasses import dataclass, replace

from proxy.domain.core import Prepared, Status
from proxy.domain.reasons import Reason
from proxy.http.forwarding import Forwarding, Progress, is_proven
from proxy.http.off_loop import OFF_LOOP
from proxy.telemetry import Metrics, log
from proxy.upstream.forms import (
    MOST_ATTEMPTS,
    READ_BYTES,
    Attempt,
    Refusal,
    Request,
    error_at_start,
    may_be_form,
    next_attempt,
    refusal_of,
)
from proxy.upstream.opened import Opened

REFUSAL_S = 10.0  # for a refusal to arrive; one that takes longer is passed on as it comes
ERROR_S = 2.0  # for an error inside an answer that has begun as a success; mostly it comes at once
HEAD_BYTES = 8 * 1024  # of such an answer
_HEADER_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


async def ask(progress: Progress, forwarding: Forwarding, metrics: Metrics) -> Opened:
    """Ask the upstream, again in another form where it refuses this one. Raises UpstreamError."""
    opened = await forwarding.open(progress)
    if opened.status < 400:
        if is_proven(progress):
            return opened
    elif not may_be_form(opened.status):
        return opened
    request = forwarding.changeable(progress)
    if not (request.memory or request.translated):
        return opened
    if request.same_shape in progress.learning.forms.suspected(progress.model):
        request = replace(request, same_shape="")
    return await _Asking(progress, forwarding, metrics, request).until_taken(opened)


@dataclass(slots=True)
class _Asking:
    """One request of which it is not known that its form is taken, and what was tried with it."""

    progress: Progress
    forwarding: Forwarding
    metrics: Metrics
    request: Request
    attempts: int = 1
    placements: tuple[str, ...] = ()  # in which memory was refused
    of_content: bool = False  # a refusal was not about form

    async def until_taken(self, opened: Opened) -> Opened:
        """Ask until the request is taken, or nothing is left to change."""
        progress, first = self.progress, self.progress.attempt
        refusal = await refusal_in(opened)
        while refusal is not None:
            last, following = progress.attempt, next_attempt(progress.attempt, self.request, refusal)
            if following is None or self.attempts == MOST_ATTEMPTS:
                return opened
            opened.close()
            self.attempts += 1
            self.of_content = self.of_content or refusal.is_of_content
            if last.memory and self.request.memory:
                self.placements = (*self.placements, last.form.placement)
            await OFF_LOOP.run(len(progress.payload), self._write, last, following)
            opened = await self.forwarding.open(progress)
            refusal = await refusal_in(opened)
        if opened.status < 400:
            self._learn(first, progress.attempt)
        return opened

    def _write(self, last: Attempt, following: Attempt) -> None:
        """Write the request as this attempt has it; without memory where it has no place for that."""
        progress = self.progress
        progress.attempt = following
        if not progress.compose(self.forwarding):
            progress.attempt = following = replace(following, memory=False)
            progress.compose(self.forwarding)
        if last.memory and not following.memory:
            before = progress.prepared
            progress.prepared = Prepared(
                status=Status.NONE, reason=Reason.REFUSED, level=before.level, to_forget=before.to_forget
            )
            progress.left_out = 0
        steps = _steps(last, following)
        log.info("form.retried", changed=", ".join(step for step, _ in steps), attempt=self.attempts)
        for step, shown in steps:
            progress.retried.append(shown)
            self.metrics.form_retries.labels(step).inc()

    def _learn(self, before: Attempt, taken: Attempt) -> None:
        """Remember what the model took. Memory given up for what it says teaches nothing about its form."""
        learning, model = self.progress.learning, self.progress.model
        if taken.memory:
            learning.took(model, before, taken)
            return
        learning.forms.learn(model, before.form, replace(taken.form, placement=before.form.placement))
        if learning.is_auto and not self.of_content:
            learning.forms.suspect(model, self.placements)


async def refusal_in(opened: Opened) -> Refusal | None:
    """Return what the upstream says against the request's form; None where it takes it, or fails otherwise.

    The answer can be relayed afterwards from its first byte."""
    if opened.status >= 400 and not may_be_form(opened.status):
        return None
    try:
        async with asyncio.timeout(REFUSAL_S if opened.status >= 400 else ERROR_S):
            if opened.status < 400:
                return await _error_inside(opened)
            body = await opened.peek(READ_BYTES)
    except TimeoutError:
        return None
    except BaseException:
        opened.close()
        raise
    coding = ",".join(
        value.decode("latin-1") for name, value in opened.headers if name == b"content-encoding"
    )
    return refusal_of(opened.status, body, coding)


async def _error_inside(opened: Opened) -> Refusal | None:
    """Return the error with which a successful answer begins: routers answer before their provider refuses. A
    stream may begin with comments."""
    wanted, head = 1, await opened.peek(1)
    while (found := error_at_start(head)) is None and wanted <= len(head) < HEAD_BYTES:
        wanted = len(head) + 1
        head = await opened.peek(wanted)
    if found == "document":
        found = error_at_start(await opened.peek(READ_BYTES), whole=True)
    return found if isinstance(found, Refusal) else None


def _steps(last: Attempt, following: Attempt) -> list[tuple[str, str]]:
    """Return what changed between two attempts, and how the header shows it."""
    found: list[tuple[str, str]] = []
    before, after = last.form, following.form
    if last.memory and not following.memory:
        found.append(("memory", "without memory"))
    elif before.placement != after.placement:
        found.append(("placement", after.placement))
    names = sorted(set(after.omit) - set(before.omit))
    found += [("field", f"without {name if _HEADER_SAFE.fullmatch(name) else 'a field'}") for name in names]
    if before.limit != after.limit:
        found.append(("limit", after.limit))
    if before.thoughts != after.thoughts:
        found.append(("thoughts", f"reasoning_content={after.thoughts}"))
    if before.tool_media != after.tool_media:
        found.append(("tool_media", "tool media as user message"))
    if before.streams_only != after.streams_only:
        found.append(("stream", "streamed"))
    if before.joined != after.joined:
        found.append(("joined", "messages joined"))
    if before.system != after.system:
        found.append(("system", "system as user message"))
    return found
