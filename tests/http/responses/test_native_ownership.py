"""Notes of who made the objects that an upstream stores."""

import time
from typing import Any

import pytest

from proxy.domain.errors import NotFound
from proxy.http.auth.identity import OPEN, Caller
from proxy.http.memory_work import FailOpen
from proxy.http.responses.ownership import (
    CONVERSATION,
    RESPONSE,
    IdWatcher,
    NativeOwnership,
    absent,
    maker_of,
    tells_apart,
)
from proxy.telemetry import Metrics

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


async def test_the_id_is_seen_however_the_answer_is_cut():
    for cut in range(0, len(ANSWER), 3):
        assert await sighted(ANSWER[:cut], ANSWER[cut:]) == ("resp_1a-b", ANSWER)


async def test_only_the_first_of_its_kind_counts():
    assert (await sighted(ANSWER, kind=CONVERSATION))[0] == "conv_9"
    assert (await sighted(ANSWER, b'{"id": "resp_3"}'))[0] == "resp_1a-b"
    assert (await sighted(ANSWER, status=404))[0] == "", "a refusal makes nothing"


@pytest.mark.parametrize(
    ("caller", "apart"),
    [(OPEN, False), (Caller("t", label="key:1"), True), (Caller("t", user="u", label="jwt"), True)],
)
def test_callers_are_distinguished_where_they_have_credentials_of_ours(caller, apart):
    assert tells_apart(caller) is apart


ALICE = Caller("t", user="alice", label="header")
BOB = Caller("t", user="bob", label="header")
MALLORY = Caller("t", user="mallory", label="header")
APP = Caller("t", label="key:app")
OTHER_APP = Caller("u", label="key:other")


@pytest.fixture
def process(stores):
    """Begin the notes of a process that knows nothing but what is stored."""
    return lambda: NativeOwnership(stores.chains, FailOpen(time.time, Metrics()), time.time, 1e6)


def with_key(key: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request with this upstream key."""
    return [(b"authorization", f"Bearer {key}".encode())]


async def sees(makers: NativeOwnership, caller: Caller, id_: str = "resp_1") -> bool:
    try:
        await makers.require(caller, id_, absent("Response", id_, "response_id"))
    except NotFound:
        return False
    return True


@pytest.mark.parametrize("restarts", [False, True])
async def test_each_of_two_with_an_upstream_key_of_their_own_keeps_what_it_made(process, restarts):
    makers = process()
    for caller, key in ((ALICE, "a"), (BOB, "b"), (ALICE, "a")):
        await makers.note(maker_of(caller, None, with_key(key)), ("resp_1",))
        makers = process() if restarts else makers
    for _ in range(2):
        assert [await sees(makers, caller) for caller in (ALICE, BOB, MALLORY)] == [True, True, False]
        assert [await sees(makers, caller) for caller in (APP, OTHER_APP)] == [True, False]


@pytest.mark.parametrize("restarts", [False, True])
async def test_of_two_with_one_key_the_first_stays(process, restarts):
    """Making the upstream repeat another user's id does not make its owner."""
    makers = process()
    await makers.note(maker_of(ALICE, None, with_key("k")), ("resp_1",))
    makers = process() if restarts else makers
    await makers.note(maker_of(BOB, None, with_key("k")), ("resp_1",))
    for each in (makers, process()):
        assert [await sees(each, caller) for caller in (ALICE, BOB)] == [True, False]
