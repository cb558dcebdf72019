"""Who made what the upstream keeps, where two users' upstreams count alike: over each backend."""

import time
from collections.abc import AsyncIterator, Callable

import pytest

from proxy.domain.errors import NotFound
from proxy.http.auth.identity import Caller
from proxy.http.failopen import FailOpen
from proxy.http.responses.native_ownership import NativeOwnership
from proxy.http.responses.owners import absent
from proxy.telemetry import Metrics
from tests.support.backends import Place, place

__all__ = ["place"]

ALICE = Caller("t", user="alice", label="header")
BOB = Caller("t", user="bob", label="header")
MALLORY = Caller("t", user="mallory", label="header")
APP = Caller("t", label="key:app")
OTHER_APP = Caller("u", label="key:other")


@pytest.fixture
async def process(place: Place) -> AsyncIterator[Callable[[], NativeOwnership]]:
    """Begin the notes of a process that knows nothing but what is stored."""
    async with place.stores() as stores:
        yield lambda: NativeOwnership(stores.chains, FailOpen(time.time, Metrics()), time.time, 1e6)


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
async def test_each_of_two_with_an_upstream_key_of_their_own_keeps_what_it_made(
    process: Callable[[], NativeOwnership], restarts: bool
) -> None:
    makers = process()
    for caller, key in ((ALICE, "a"), (BOB, "b"), (ALICE, "a")):
        await makers.note(caller, None, ("resp_1",), with_key(key))
        makers = process() if restarts else makers
    for _ in range(2):
        assert [await sees(makers, caller) for caller in (ALICE, BOB, MALLORY)] == [True, True, False]
        assert [await sees(makers, caller) for caller in (APP, OTHER_APP)] == [True, False]


@pytest.mark.parametrize("restarts", [False, True])
async def test_of_two_with_one_key_the_first_stays(
    process: Callable[[], NativeOwnership], restarts: bool
) -> None:
    """Whoever brings the upstream to say another's id has not made it."""
    makers = process()
    await makers.note(ALICE, None, ("resp_1",), with_key("k"))
    makers = process() if restarts else makers
    await makers.note(BOB, None, ("resp_1",), with_key("k"))
    for each in (makers, process()):
        assert [await sees(each, caller) for caller in (ALICE, BOB)] == [True, False]


async def test_a_tenants_key_with_an_upstream_key_of_its_own_sees_what_it_made(
    process: Callable[[], NativeOwnership],
) -> None:
    makers = process()
    await makers.note(ALICE, None, ("resp_1",), with_key("a"))
    await makers.note(OTHER_APP, "zoe", ("resp_1",), with_key("b"))
    for each in (makers, process()):
        assert [await sees(each, caller) for caller in (ALICE, OTHER_APP, BOB)] == [True, True, False]
        assert await sees(each, Caller("u", user="zoe", label="jwt"))
        assert not await sees(each, Caller("u", user="yan", label="jwt"))
