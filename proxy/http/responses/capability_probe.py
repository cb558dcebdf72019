"""Detect whether the upstream speaks the Responses API: with a real request, repeated now and then.

Pure: what was seen goes in, what to do comes out. Each process finds out for itself.


The Forwarding of mode `auto`: as it is where the upstream speaks the Responses API, else translated.

A request finds out by being sent. Where the upstream turns out not to know the route, the same request goes
on translated, and those after it are translated from the start, until it is time to ask again.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import partial

from proxy.domain.errors import InvalidRequest
from proxy.domain.ports import Clock
from proxy.http.asgi import Header
from proxy.http.forwarding import Forwarding, Progress, Relayed
from proxy.http.responses.native_ownership import RESPONSE, IdWatcher, NativeOwnership, named_in, tells_apart
from proxy.http.responses.owners import credential_of, is_ours
from proxy.http.responses.translated import TranslatedForwarding
from proxy.upstream.connection import UpstreamResponse
from proxy.upstream.forms import RequestTraits
from proxy.upstream.relay import Ending
from proxy.wire import body as json_body
from proxy.wire.body import Body, loads
from proxy.wire.dialect import RESPONSES, Answer
from proxy.wire.history import HistoryFormat
from proxy.wire.translation import referenced_ids, response_of

REPROBE_S = 600.0  # how long "no" is believed: upstreams get upgraded


class ResponsesMode(StrEnum):
    """The setting `upstream.responses`."""

    AUTO = "auto"
    NATIVE = "native"
    TRANSLATE = "translate"


class EndpointProbe:
    """What is known of one endpoint of the upstream under the setting."""

    def __init__(self, speech: ResponsesMode, reprobe_s: float = REPROBE_S) -> None:
        self._speech, self._reprobe_s = speech, reprobe_s
        self._absent_since: float | None = None

    @property
    def settled(self) -> bool:
        """True where the setting leaves nothing to find out."""
        return self._speech is not ResponsesMode.AUTO

    def speaks(self, now: float) -> bool:
        """True if a request is to be sent as it is. While one asks again, the others stay translated."""
        if self.settled:
            return self._speech is ResponsesMode.NATIVE
        if self._absent_since is None:
            return True
        if 0 <= now - self._absent_since < self._reprobe_s:  # below: the clock was set back
            return False
        self._absent_since = now
        return True

    def known_absent(self) -> bool:
        """True if the endpoint was not there when last asked for."""
        return self._speech is ResponsesMode.TRANSLATE or self._absent_since is not None

    def heard(self, status: int, body: bytes, now: float) -> bool:
        """Note an answer of the endpoint; True if it says that there is no such endpoint. `body` matters
        for 404 only."""
        if self.settled:
            return False
        absent = is_absence(status, body)
        if absent:
            self._absent_since = now
        elif status < 500:  # a failing gateway says nothing about what is behind it
            self._absent_since = None
        return absent


def is_absence(status: int, body: bytes) -> bool:
    """True if an answer means that the upstream has no such endpoint, and not that it lacks something
    which the request named (a model, a stored response)."""
    if status in (405, 501):
        return True
    return status == 404 and not _names_a_thing(body)


# Servers name what they lack in the error's code, in `param`, or only in its text.
_THING_CODE = re.compile(r"(model|response|conversation|item|file|prompt|deployment)\w*not_?found", re.I)
_LONGEST_CODE = 200  # characters: a longer one is no code, and not worth a pattern's time
_THING_TEXT = re.compile(r"\bmodel\b|\bdeployment\b|\bwith id\b", re.I)


def _names_a_thing(body: bytes) -> bool:
    try:
        answer = loads(body)
    except (ValueError, RecursionError, InvalidRequest):
        return False
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, str):
        return bool(_THING_TEXT.search(error))
    if not isinstance(error, dict):
        return False
    code, param, text = (str(error.get(name) or "") for name in ("code", "param", "message"))
    return bool(param or _THING_CODE.search(code[:_LONGEST_CODE]) or _THING_TEXT.search(text))


REFUSAL_BYTES = 64 * 1024  # more is no plain "not found"
_MAY_BE_ABSENT = (404, 405, 501)


class AutoForwarding:
    """See Forwarding for when the methods are called. `makers`: who made what the upstream keeps; None where
    nobody has to know."""

    def __init__(
        self,
        relayed: Relayed,
        translated: TranslatedForwarding,
        hearing: EndpointProbe,
        clock: Clock,
        makers: NativeOwnership | None = None,
    ) -> None:
        self._relayed, self._translated = relayed, translated
        self._hearing, self._clock, self._makers = hearing, clock, makers
        self._way: Forwarding = relayed
        self._sighting: IdWatcher | None = None

    async def adopt(self, progress: Progress) -> None:
        """Choose the way. What continues something that is kept here has no other."""
        if continues_ours(progress.body) or not self._hearing.speaks(self._clock()):
            self._way = self._translated
        else:
            await self._require_own(progress)
        await self._way.adopt(progress)

    async def _require_own(self, progress: Progress) -> None:
        """Raise what a request is refused with that continues what another user of ours has made."""
        caller = progress.caller
        if self._makers is None or caller is None or not tells_apart(caller):
            return
        if not progress.is_json:
            raise InvalidRequest("Send plain JSON: what the request continues must be known here.")
        await self._makers.require_all(caller, progress.body)
        # As we read it: of a key that stands twice, the upstream might take the other one.
        progress.payload = json_body.dump(progress.body)

    def conversation(self, progress: Progress) -> tuple[Body, HistoryFormat]:
        """Return the body that the chosen way forwards."""
        return self._way.conversation(progress)

    @property
    def route(self) -> str:
        """The route that the chosen way asks."""
        return self._way.route

    def changeable(self, progress: Progress) -> RequestTraits:
        """Return what the chosen way may change."""
        return self._way.changeable(progress)

    def write(self, progress: Progress, body: Body) -> None:
        """Write the payload as the chosen way does."""
        self._way.write(progress, body)

    async def acknowledge(self, progress: Progress) -> None:
        """Answer already now, if the chosen way does."""
        await self._way.acknowledge(progress)

    async def open(self, progress: Progress) -> UpstreamResponse:
        """Ask the upstream; if it has no such route, ask it again in words that it knows."""
        opened = await self._way.open(progress)
        if self._way is self._translated or not await self._absent(opened):
            return opened
        opened.close()
        self._way = self._translated
        progress.gone, progress.left_out = (), 0  # this once: the next request is translated at once
        await self._way.adopt(progress)
        progress.start(self._way, RESPONSES)
        progress.place(self._way)
        await self._way.acknowledge(progress)
        return await self._way.open(progress)

    async def answer(self, progress: Progress, opened: UpstreamResponse, headers: list[Header]) -> Ending:
        """Answer as the chosen way does."""
        if self._way is self._relayed and self._makers is not None and tells_apart(progress.caller):
            progress.send = self._sighting = IdWatcher(
                progress.send,
                RESPONSE,
                partial(self._claim, progress),
                (n.id for n in named_in(progress.body)),
            )
        return await self._way.answer(progress, opened, headers)

    async def conclude(self, progress: Progress) -> Answer:
        """Conclude as the chosen way does; then whose response it was is written down."""
        said = await self._way.conclude(progress)
        if self._sighting is not None and self._sighting.ids and self._makers and progress.caller:
            await self._makers.note(
                progress.caller, progress.user, self._sighting.ids, credential_of(progress.headers)
            )
        return said

    def _claim(self, progress: Progress, ids: Iterable[str]) -> None:
        if self._makers and progress.caller:
            self._makers.claim(progress.caller, progress.user, ids, credential_of(progress.headers))

    async def _absent(self, opened: UpstreamResponse) -> bool:
        try:
            body = await opened.peek(REFUSAL_BYTES) if opened.status in _MAY_BE_ABSENT else b""
        except BaseException:
            opened.close()
            raise
        return self._hearing.heard(opened.status, body, self._clock())


def continues_ours(body: Body) -> bool:
    """True if the request builds on a response, a conversation or an item that no upstream knows."""
    conversation = body.get("conversation")
    named = conversation.get("id") if isinstance(conversation, dict) else conversation
    made_in = (response_of(item_id) for item_id in referenced_ids(body.get("input")))
    return any(map(is_ours, (body.get("previous_response_id"), named, *made_in)))
