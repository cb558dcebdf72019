"""A vague question said in full by a model on a real socket: quick, slow, or gone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from proxy import __version__
from proxy.domain.core import MemoryOptions, Message, Scope, Turn
from proxy.recall.query import query_of
from proxy.recall.rewrite import REWRITE_ROLE, QueryRewriter
from proxy.upstream.client import Upstream
from proxy.upstream.completer import Credentials, RoleModel, UpstreamCompleter
from tests.support.upstream import Exchange, ScriptedUpstream, completion

EARLIER = "We plan our Portugal trip in May."
ANN = Scope("t", "ann")
TURN = Turn(
    request_id="r",
    scope=ANN,
    session_id="s",
    model="m",
    messages=(Message("user", EARLIER), Message("assistant", "Hotel first?"), Message("user", "how much?")),
    options=MemoryOptions(read=True, write=True, types=None, limit=5, threshold=None),
    at=0.0,
)


@asynccontextmanager
async def wording_by(model: ScriptedUpstream, *, deadline_s: float) -> AsyncIterator[QueryRewriter]:
    """A wording whose model has an endpoint of its own; the client's credential is known."""
    credentials = Credentials()
    credentials.remember(ANN, [(b"authorization", b"Bearer ann")])
    async with Upstream("http://127.0.0.1:9/v1") as upstream, Upstream(model.url) as endpoint:
        roles = {REWRITE_ROLE: RoleModel(endpoint=model.url, model="small")}
        completer = UpstreamCompleter(upstream, credentials, roles, {model.url: endpoint})
        yield QueryRewriter(completer, deadline_s=deadline_s)


async def asked(wording: QueryRewriter) -> str:
    query = await wording.improve(TURN, query_of("how much?", EARLIER), [EARLIER], spent_s=0.0)
    return query.text


async def test_the_configured_model_is_asked_and_never_sees_the_client_s_credential() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.json(completion('{"question": "How much is the hotel of our Portugal trip?"}'))

    async with ScriptedUpstream(script) as model, wording_by(model, deadline_s=5) as wording:
        assert await asked(wording) == "How much is the hotel of our Portugal trip?"
        (request,) = model.requests
    assert request.header(b"user-agent") == f"memory-proxy/{__version__} (memory_rewrite)".encode()
    assert request.header(b"authorization") is None
    assert request.json["model"] == "small"
    assert request.json["response_format"]["json_schema"]["name"] == REWRITE_ROLE


async def test_a_model_that_answers_anything_changes_nothing() -> None:
    answers = iter(
        ['{"facts": [{"content": "User likes tea"}]}', "I'm sorry, I can't do that.", "```json\n["]
    )

    async def script(exchange: Exchange) -> None:
        answer: Any = completion(next(answers))
        await exchange.json(answer)

    async with ScriptedUpstream(script) as model:
        for _ in range(3):
            async with wording_by(model, deadline_s=5) as wording:
                assert await asked(wording) == query_of("how much?", EARLIER).text
