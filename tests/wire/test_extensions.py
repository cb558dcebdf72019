"""Our own request fields: taken out, checked strictly, refused by name."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.errors import InvalidRequest
from proxy.wire.extensions import Extensions, is_placeholder, merge, take_extensions, take_header_extensions

FULL: dict[str, Any] = {
    "memory_config": {
        "enabled": True, "memory_types": ["semantic", "episodic", "semantic"], "retrieval_limit": 5,
        "similarity_threshold": 0.6, "auto_store": False,
    },
    "memory_context": {"user_id": "user_456", "project_id": "apollo", "session_id": "s-9"},
}  # fmt: skip


def refusal(body: dict[str, Any]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        take_extensions(body)
    return caught.value


def test_both_sections_are_read_and_leave_the_body():
    body = {"model": "m", "messages": [], **FULL}
    assert take_extensions(body) == Extensions(
        enabled=True, memory_types=("semantic", "episodic"), retrieval_limit=5, similarity_threshold=0.6,
        auto_store=False, user_id="user_456", project_id="apollo", session_id="s-9",
    )  # fmt: skip
    assert body == {"model": "m", "messages": []}


@given(st.dictionaries(st.text().filter(lambda name: not name.startswith("memory_c")), st.integers()))
def test_a_body_without_extensions_comes_back_equal(body):
    before = dict(body)
    assert take_extensions(body) == Extensions()
    assert body == before
    assert list(body) == list(before)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("enabled", "true"), ("enabled", 1), ("memory_types", "semantic"), ("memory_types", []),
        ("memory_types", ["semantic", 3]), ("retrieval_limit", True), ("retrieval_limit", 0),
        ("retrieval_limit", 10**400), ("similarity_threshold", True), ("similarity_threshold", float("nan")),
        ("similarity_threshold", 10**400),
    ],
)  # fmt: skip
def test_a_wrong_config_value_is_refused_by_its_name(field, value):
    error = refusal({"memory_config": {field: value}})
    assert error.param == f"memory_config.{field}"
    assert error.status == 400


@pytest.mark.parametrize("field", ["user_id", "project_id", "session_id"])
@pytest.mark.parametrize(
    "value",
    # U+FFFD: a decoder puts it in place of any bytes that cannot be read, so two ids would become one.
    ["", "  ", "a" * 257, "two\nlines", "nul\x00", "\u2028", "\ud83d", "al\ufffdice", 7, []],
)  # fmt: skip
def test_an_id_that_cannot_name_anyone_is_refused(field, value):
    assert refusal({"memory_context": {field: value}}).param == f"memory_context.{field}"


@pytest.mark.parametrize("section", ["memory_config", "memory_context"])
def test_a_section_is_an_object_and_null_as_good_as_absent(section):
    for value in ("on", True, 3, [{}]):
        assert refusal({section: value}).param == section
    field = {"memory_config": "enabled", "memory_context": "user_id"}[section]
    for nothing in (None, {}, {field: None}):
        body = {section: nothing}
        assert (take_extensions(body), body) == (Extensions(), {})


@pytest.mark.parametrize(
    ("section", "field", "meant"),
    [("memory_config", "retreival_limit", "retrieval_limit"), ("memory_context", "userId", "user_id")],
)
def test_an_unknown_field_is_refused_with_the_nearest_name(section, field, meant):
    error = refusal({section: {field: 1}})
    assert error.param == f"{section}.{field}"
    assert f"did you mean '{meant}'?" in error.message


@pytest.mark.parametrize("name", ["\ud83d", "x" * 1_000_000, "a\x00b"])
def test_a_refusal_can_be_written_whatever_the_client_called_its_field(name):
    error = refusal({"memory_config": {name: 1}})
    assert len(error.message.encode()) < 1_000
    assert len(str(error.param).encode()) < 1_000


# ---------------------------------------------------------------- headers
def test_headers_name_the_same_things():
    headers = [
        (b"host", b"x"), (b"X-Memory-User-Id", b"user_456"), (b"x-memory-project-id", b" apollo "),
        (b"X-MEMORY-SESSION-ID", b"s-9"), (b"x-memory-mode", b"Read"), (b"x-memory-unheard-of", b"1"),
    ]  # fmt: skip
    assert take_header_extensions(headers) == Extensions(
        user_id="user_456", project_id="apollo", session_id="s-9", enabled=True, retrieve=True,
        auto_store=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Memory-Session-Id", b"a" * 257),
        ("X-Memory-Project-Id", b"a\x01b"),
        ("X-Memory-Mode", b"readonly"),
        ("X-Memory-Mode", b"\xff"),
    ],
)
def test_a_wrong_header_is_refused_by_its_name(name, value):
    with pytest.raises(InvalidRequest) as caught:
        take_header_extensions([(name.lower().encode(), value)])
    assert caught.value.param == name


# ---------------------------------------------------------------- both
@pytest.mark.parametrize(
    ("mode", "config", "read", "write"),
    [
        (None, {}, True, True), (b"on", {}, True, True), (b"read", {}, True, False),
        (b"write", {}, False, True), (b"off", {}, False, False),
        (b"off", {"auto_store": True, "retrieval_limit": 3}, False, False),
        (b"off", {"enabled": True}, True, True), (b"on", {"enabled": False}, False, False),
        (b"read", {"auto_store": True}, True, True), (None, {"auto_store": False}, True, False),
        (None, {"enabled": False, "auto_store": True}, False, False),
    ],
)  # fmt: skip
def test_off_means_neither_read_nor_write(mode, config, read, write):
    header = take_header_extensions([(b"x-memory-mode", mode)] if mode else [])
    body = {"memory_config": config, "memory_context": {"user_id": "bob"}}
    both = merge(take_extensions(body), replace(header, user_id="ada", project_id="apollo"))
    assert (both.user_id, both.project_id) == ("bob", "apollo"), "the body wins, field by field"
    assert both.switches(enabled=True, auto_store=True) == (read, write)


PLACEHOLDERS = [
    "{{LIBRECHAT_USER_ID}}", "{{ user.id }}", "acme:{{USER}}", "%7B%7BUSER%7D%7D",
    "%257B%257Buser%257D%257D", "${USER}", "user-${USER_ID}", "$USER", "$env:USERNAME", "%USERNAME%",
    "$(whoami)", "{user_id}", "{}", "{0}", "<user>", "<your-user-id>", "&lt;user&gt;", "[USER_ID]",
    ":user_id", "<%= user %>", "{% user %}", "#{user}", "%(user)s", "%s", "__USER__", "YOUR_USER_ID",
    "your-username", "null", "NULL", " undefined ", "None", "nil", "NaN", "<nil>", "%!s(<nil>)",
    "(null)", "[object Object]", "user:undefined", "undefined-undefined", "null:null", '""', "'null'",
    '"undefined"', "false",
]  # fmt: skip
PEOPLE = [
    "alice", "Null Pointer", "nullah", "none-such", "anna.none", "undefinedson", "user_456",
    "a@example.com", "<anna@example.com>", "{a50e8400-e29b-41d4-a716-446655440000}", "100% me", "$",
    "50%", "O'Neill", "true north", "auth0|5f7c8ec7c33c6c004bbafe82", "google-oauth2:1234",
    "ns/svc:user", "张伟", "المستخدم", "id=7", "a&b", "user", "null-island", "123", "your mum", "C++",
    "[bracketed@x]", "cn=anna,ou=people", "domain\\anna", '{"$ne":1}', "a" * 256, "👩‍👩‍👧", " padded ",
]  # fmt: skip


def test_an_unfilled_placeholder_names_no_user_and_what_looks_a_little_like_one_is_a_name():
    assert [value for value in PLACEHOLDERS if not is_placeholder(value)] == []
    assert [value for value in PEOPLE if is_placeholder(value)] == []
    for value in PEOPLE:
        assert take_extensions({"memory_context": {"user_id": value}}).user_id == value
    ids = ("user", "project", "session")
    assert take_extensions({"memory_context": {f"{name}_id": "$USER" for name in ids}}) == Extensions(
        unfilled=True
    )
    headers = [(f"x-memory-{name}-id".encode(), b"{{USER}}") for name in ids]
    assert take_header_extensions(headers) == Extensions(unfilled=True)


def test_empty_headers_are_as_good_as_absent():
    names = (b"X-Memory-User-Id", b"x-memory-project-id", b"x-memory-session-id", b"x-memory-mode")
    assert take_header_extensions([(name, b" \t") for name in names]) == Extensions()
    assert take_header_extensions([(names[0], b""), (names[0], b"alice")]).user_id == "alice"
    with pytest.raises(InvalidRequest, match="given twice"):
        take_header_extensions([(names[0], b"ada"), (names[0], b"bob")])
