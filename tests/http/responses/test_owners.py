"""Owners of objects, and what clients hold for us: readable for its owner only."""

import time

import pytest

from proxy.http.auth.identity import Caller
from proxy.http.memory_work import FailOpen
from proxy.http.responses.ownership import Owner, Sealed, SealKey, is_ours, new_id, owner_of
from proxy.telemetry import Metrics
from proxy.wire.extensions import is_usable_id
from proxy.wire.translation.items import PACKED

OPEN = Caller("default")
ONE, OTHER = [(b"authorization", b"Bearer sk-1")], [(b"authorization", b"Bearer sk-2")]


def test_the_key_itself_is_not_in_the_owners_name_and_no_user_can_have_that_name():
    for headers in (ONE, []):
        name = owner_of(OPEN, headers, None).scope.user
        assert "sk-1" not in name
        assert not is_usable_id(name)


def test_ids_are_long_random_and_differ_from_an_upstreams():
    ids = {new_id("resp") for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(is_ours(id_) and len(id_.removeprefix("resp_mp")) * 4 >= 128 for id_ in ids)
    assert not is_ours("resp_68a1f0c2mp")
    assert not is_ours("resp_67ccd2bed1ec8190b14f964abc054267")
    assert not is_ours(None)


KEY = bytes(range(32))
ALICE, BOB = owner_of(OPEN, ONE, "alice"), owner_of(OPEN, ONE, "bob")
UNNAMED, UNNAMED_2 = owner_of(OPEN, ONE, None), owner_of(OPEN, OTHER, None)
FIXED = owner_of(Caller("t", user="alice", label="jwt"), ONE, None)
TEXT = "the plan \udc80 …"


def opened(sealed: str, reader: Owner, key: bytes = KEY) -> str | None:
    return Sealed(key, reader).open("thoughts", sealed)


@pytest.mark.parametrize(
    ("maker", "readers"),
    [
        (ALICE, [ALICE, UNNAMED, owner_of(OPEN, OTHER, "alice")]),
        (UNNAMED, [UNNAMED, ALICE, BOB]),
        (UNNAMED_2, [UNNAMED_2, owner_of(OPEN, OTHER, "alice")]),
        (FIXED, [FIXED]),
    ],
)
def test_a_seal_opens_as_a_stored_response_is_found(maker, readers):
    sealed = Sealed(KEY, maker).seal("thoughts", TEXT)
    everyone = [ALICE, BOB, UNNAMED, UNNAMED_2, owner_of(OPEN, OTHER, "alice"), FIXED]
    assert [opened(sealed, who) for who in everyone] == [TEXT if who in readers else None for who in everyone]
    assert "plan" not in sealed
    assert opened(sealed, maker, bytes(32)) is None
    assert Sealed(KEY, maker).open("compaction", sealed) is None
    assert PACKED.open("thoughts", sealed) is None


def test_every_changed_byte_breaks_the_seal():
    sealed = Sealed(KEY, ALICE).seal("thoughts", "x")
    for at in range(4, len(sealed) - 2, 7):
        changed = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
        assert opened(changed, ALICE) in (None, "x")  # one of the two wraps may be the changed one
        assert opened(changed, BOB) is None


async def test_all_processes_have_one_key(stores):
    def process():
        return SealKey(stores.conversations, FailOpen(time.time, Metrics()), time.time)

    one, other = process(), process()
    sealed = (await one.seals(ALICE)).seal("thoughts", TEXT)
    assert sealed.startswith("mp2.")
    assert (await other.seals(ALICE)).open("thoughts", sealed) == TEXT
