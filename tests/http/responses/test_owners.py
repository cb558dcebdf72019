"""Whose an object is."""

from proxy.domain.core import Scope
from proxy.http.auth.identity import Caller
from proxy.http.responses.owners import is_ours, new_id, owner_of, shelf
from proxy.wire.extensions import is_usable_id

OPEN = Caller("default")
KEY, OTHER = [(b"authorization", b"Bearer sk-1")], [(b"authorization", b"Bearer sk-2")]


def test_a_named_user_owns_what_is_made_for_them() -> None:
    owner = owner_of(OPEN, KEY, "alice", "p")
    assert owner.scope == Scope("default", "alice", "p")
    assert owner.named


def test_without_a_user_each_key_owns_what_it_made() -> None:
    one, other = owner_of(OPEN, KEY, None), owner_of(OPEN, OTHER, None)
    assert one == owner_of(OPEN, KEY, None)
    assert one.scope != other.scope
    assert not one.named
    assert owner_of(OPEN, KEY, "alice").credential == one.scope


def test_a_key_of_ours_owns_what_it_made_whichever_upstream_key_it_stands_for() -> None:
    one, other = Caller("t", label="key:1"), Caller("t", label="key:2")
    assert owner_of(one, KEY, None) == owner_of(one, OTHER, None) == owner_of(one, [], None)
    assert owner_of(one, KEY, None).scope != owner_of(other, KEY, None).scope
    assert owner_of(Caller("u", label="key:1"), [], None) != owner_of(one, [], None)


def test_a_credential_counts_in_every_header_that_clients_use() -> None:
    nobody = owner_of(OPEN, [], None)
    for name in (b"authorization", b"api-key", b"x-api-key"):
        assert owner_of(OPEN, [(name, b"sk-1")], None) != nobody


def test_the_key_itself_is_not_in_the_owners_name_and_no_user_can_have_that_name() -> None:
    for headers in (KEY, []):
        name = owner_of(OPEN, headers, None).scope.user
        assert "sk-1" not in name
        assert not is_usable_id(name)


def test_a_credential_that_stands_for_a_user_owns_nothing_else() -> None:
    owner = owner_of(Caller("t", user="zoe"), KEY, None)
    assert (owner.scope, owner.credential) == (Scope("t", "zoe"), None)


def test_ids_are_long_random_and_told_from_an_upstreams() -> None:
    ids = {new_id("resp") for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(is_ours(id_) and len(id_.removeprefix("resp_mp")) * 4 >= 128 for id_ in ids)
    assert not is_ours("resp_68a1f0c2mp")
    assert not is_ours("resp_67ccd2bed1ec8190b14f964abc054267")
    assert not is_ours(None)


def test_notes_about_objects_lie_apart_from_each_other_and_from_their_holders_own() -> None:
    holder = Scope("acme", "\x1fapp")
    shelves = [shelf(holder, new_id("resp")) for _ in range(400)]
    assert len(set(shelves)) > 150  # of 256
    assert holder not in shelves
    assert all(each.tenant == "acme" and each.user.startswith(holder.user) for each in shelves)
    assert shelf(holder, "\ud83d") == shelf(holder, "\ud83d") != shelf(Scope("acme", "\x1fother"), "\ud83d")
