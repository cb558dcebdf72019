"""What is noted of the objects that an upstream keeps."""

from typing import Any

import pytest

from proxy.http.auth.identity import OPEN, Caller
from proxy.http.responses.native_ownership import (
    CONVERSATION,
    RESPONSE,
    IdWatcher,
    tells_apart,
)

ANSWER = (
    b'event: response.created\ndata: {"type": "response.created", "response": {'
    b'"conversation": {"id": "conv_9"}, "previous_response_id": "resp_0", '
    b'"id" : "resp_1a-b", "output": [{"id": "resp_2"}]}}\n\n'
)


async def sighted(*pieces: bytes, status: int = 200, kind: str = RESPONSE) -> tuple[str, bytes]:
    """Return the id that was seen, and what the client got."""
    passed: list[Any] = []

    async def send(message: Any) -> None:
        passed.append(message)

    sighting = IdWatcher(send, kind, lambda ids: None)
    await sighting({"type": "http.response.start", "status": status, "headers": []})
    for piece in pieces:
        await sighting({"type": "http.response.body", "body": piece, "more_body": True})
    assert [m["type"] for m in passed] == ["http.response.start"] + ["http.response.body"] * len(pieces)
    return sighting.id, b"".join(m["body"] for m in passed[1:])


async def test_the_id_is_seen_however_the_answer_is_cut() -> None:
    for cut in range(len(ANSWER)):
        assert await sighted(ANSWER[:cut], ANSWER[cut:]) == ("resp_1a-b", ANSWER)


async def test_only_the_first_of_its_kind_counts() -> None:
    assert (await sighted(ANSWER, kind=CONVERSATION))[0] == "conv_9"
    assert (await sighted(ANSWER, b'{"id": "resp_3"}'))[0] == "resp_1a-b"


async def test_a_refusal_makes_nothing() -> None:
    assert (await sighted(ANSWER, status=404))[0] == ""


@pytest.mark.parametrize(
    ("caller", "told"),
    [
        (OPEN, False),
        (Caller("t", label="key:1"), True),
        (Caller("t", user="u", label="jwt"), True),
    ],
)
def test_callers_are_told_apart_where_they_have_credentials_of_ours(caller: Caller, told: bool) -> None:
    assert tells_apart(caller) is told
