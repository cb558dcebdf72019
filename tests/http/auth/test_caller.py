"""A request narrows what its credential allows, and never widens it."""

import pytest

from proxy.domain.core import Scope
from proxy.domain.errors import Forbidden, InvalidRequest
from proxy.http.auth.identity import OPEN, Caller, admit, caller_of
from tests.http.auth.asking import scope_of

ZOE = Caller("t", user="zoe")
FOREIGN = ["alice", "Zoe", " zoe", "zoe ", "zoe\u200b", "ｚoe", "zoe/", ""]


def test_without_a_fixed_user_the_one_named_is_believed_and_the_body_goes_before_the_header() -> None:
    assert OPEN.scope("alice", None) == Scope("default", "alice")
    assert Caller("t", named="bob").scope(None, "p") == Scope("t", "bob", "p")
    assert Caller("t", named="bob").scope("alice", None) == Scope("t", "alice")


def test_a_fixed_user_need_not_be_named() -> None:
    assert ZOE.scope(None, None) == ZOE.scope("zoe", None) == Scope("t", "zoe")


@pytest.mark.parametrize("other", FOREIGN[:-1])
def test_a_fixed_user_is_never_another_whatever_it_looks_like(other: str) -> None:
    with pytest.raises(Forbidden):
        ZOE.narrow(other)
    with pytest.raises(Forbidden):
        ZOE.scope(other, None)


def test_a_header_that_names_another_is_not_healed_by_a_body_that_does_not() -> None:
    with pytest.raises(Forbidden):
        Caller("t", user="zoe", named="bob").narrow("zoe")


def test_nobody_named_is_no_scope_and_an_empty_name_is_nobody() -> None:
    for user in (None, "", " "):
        with pytest.raises(InvalidRequest) as refused:
            OPEN.scope(user, None)
        assert refused.value.param == "user_id"


def test_an_id_with_bytes_that_could_not_be_read_is_refused() -> None:
    """`?user_id=al%FFice` and `al%FEice` decode alike: they must not become one user."""
    for user, project in (("al\ufffdice", None), ("alice", "p\ufffd")):
        with pytest.raises(InvalidRequest):
            OPEN.scope(user, project)


def test_a_right_that_the_credential_lacks_is_refused() -> None:
    chatting = Caller("t", rights=frozenset(("chat",)))
    chatting.require("chat")
    with pytest.raises(Forbidden) as refused:
        chatting.require("memory")
    assert refused.value.code == "missing_right"


def test_the_caller_is_read_from_the_scope_with_the_user_that_the_header_names() -> None:
    scope = scope_of(("X-Memory-User-Id", "bob"))
    admit(scope, OPEN)
    assert caller_of(scope).scope(None, None) == Scope("default", "bob")
    admit(scope, ZOE)
    with pytest.raises(Forbidden):
        caller_of(scope)


def test_the_project_that_the_header_names_is_the_requests_and_no_second_one_is_believed() -> None:
    scope = {"headers": [(b"x-memory-project-id", b"apollo")]}
    admit(scope, OPEN)
    caller = caller_of(scope)
    assert caller.scope("zoe", None) == caller.scope("zoe", "apollo") == Scope("default", "zoe", "apollo")
    with pytest.raises(InvalidRequest) as refused:
        caller.scope("zoe", "zeus")
    assert refused.value.param == "X-Memory-Project-Id"
    assert [caller.sees(project) for project in ("apollo", None, "zeus")] == [True, True, False]


def test_whoever_was_not_admitted_is_nobody() -> None:
    with pytest.raises(KeyError):
        caller_of(scope_of(("X-Memory-User-Id", "bob")))
