"""Our own errors as clients see them."""

import json

import pytest

from proxy.domain.errors import (
    Conflict,
    EmbeddingFailed,
    NotFound,
    ProxyError,
    StoreUnavailable,
    UpstreamTimeout,
)
from proxy.http.asgi import Message
from proxy.http.errors import error_of, send_error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFound("No such thing.", code="memory_not_found"), 404, "memory_not_found"),
        (UpstreamTimeout("It did not answer."), 504, "upstream_timeout"),
        (Conflict("generation 5"), 409, "conflict"),
        (EmbeddingFailed("onnx: shape [1, 7]"), 503, "embedding_failed"),
        (StoreUnavailable("/data/memory.db: SQLITE_FULL"), 503, "store_unavailable"),
        (ProxyError("inner"), 500, "internal_error"),
    ],
)
def test_every_error_has_a_status_and_a_code(error: ProxyError, status: int, code: str) -> None:
    found, body = error_of(error)
    assert (found, body["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    "error", [Conflict("generation 5"), EmbeddingFailed("onnx"), StoreUnavailable("/data")]
)
def test_what_is_inside_is_not_told_and_what_to_do_is(error: ProxyError) -> None:
    message = error_of(error)[1]["error"]["message"]
    assert str(error) not in message
    assert message.endswith(".")


async def test_an_error_may_quote_half_an_emoji() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await send_error(send, NotFound("No response with id '\ud83d'.", param="response_id"))
    start, body = sent
    assert start["status"] == 404
    assert json.loads(body["body"])["error"]["message"] == "No response with id '\ud83d'."
