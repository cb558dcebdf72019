"""Whose an object is."""

from proxy.http.auth.identity import Caller
from proxy.http.responses.owners import is_ours, new_id, owner_of
from proxy.wire.extensions import is_usable_id

OPEN = Caller("default")
KEY, OTHER = [(b"authorization", b"Bearer sk-1")], [(b"authorization", b"Bearer sk-2")]


def test_a_key_of_ours_owns_what_it_made_whichever_upstream_key_it_stands_for() -> None:
    one, other = Caller("t", label="key:1"), Caller("t", label="key:2")
    assert owner_of(one, KEY, None) == owner_of(one, OTHER, None) == owner_of(one, [], None)
    assert owner_of(one, KEY, None).scope != owner_of(other, KEY, None).scope
    assert owner_of(Caller("u", label="key:1"), [], None) != owner_of(one, [], None)


def test_the_key_itself_is_not_in_the_owners_name_and_no_user_can_have_that_name() -> None:
    for headers in (KEY, []):
        name = owner_of(OPEN, headers, None).scope.user
        assert "sk-1" not in name
        assert not is_usable_id(name)


def test_ids_are_long_random_and_differ_from_an_upstreams() -> None:
    ids = {new_id("resp") for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(is_ours(id_) and len(id_.removeprefix("resp_mp")) * 4 >= 128 for id_ in ids)
    assert not is_ours("resp_68a1f0c2mp")
    assert not is_ours("resp_67ccd2bed1ec8190b14f964abc054267")
    assert not is_ours(None)
