"""What a request asks of memory, and what the server lets it have."""

import json
from typing import Any

import pytest

from proxy.domain.core import Reason
from proxy.domain.errors import Forbidden
from proxy.http.asgi import REQUEST_ID_KEY
from proxy.http.auth.identity import Caller
from proxy.http.turns import Client, Defaults, ParsedRequest, RequestParser
from proxy.wire.body import BodyLimits
from proxy.wire.dialect import CHAT

DEFAULTS: dict[str, Any] = {
    "enabled": True, "auto_store": True, "may_store": True, "retrieval_limit": 10,
    "accept_openai_user": False,
}  # fmt: skip
ANNA = {"user_id": "anna"}
TITLE = [{"role": "user", "content": "Generate a short title for this conversation:\n\nUSER: I like tea."}]


def asked(caller: Caller = Caller("t"), mode: str = "", **said: Any) -> ParsedRequest:  # noqa: B008 frozen
    """Return what a request with these fields asks of a server with these defaults."""
    defaults = Defaults(**{name: said.pop(name, value) for name, value in DEFAULTS.items()})
    headers = [(b"x-memory-mode", mode.encode())] if mode else []
    body = {"messages": [{"role": "user", "content": "I like tea."}], **said}
    parser = RequestParser(
        dialect=CHAT, defaults=defaults, bounds=BodyLimits(), max_body_bytes=10**6, deadline_s=1.0,
        clock=lambda: 0.0, identify=lambda scope: caller, session_key=str,
    )  # fmt: skip
    client: Any = Client({"headers": headers, REQUEST_ID_KEY: "r"}, *([None] * 3))  # type: ignore[list-item]
    payload = json.dumps(body).encode()
    return parser.read(client, caller, payload, 0.0)


@pytest.mark.parametrize(
    "said", [{"memory_config": {"auto_store": True}}, {"mode": "on"}, {"mode": "write"}, {}]
)
def test_a_request_cannot_ask_for_storage_that_is_off(said):
    allowed = asked(memory_context=ANNA, **said).turn
    assert allowed is not None
    assert allowed.options.write
    bound = asked(memory_context=ANNA, may_store=False, **said)
    assert bound.turn is None or not bound.turn.options.write


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (asked(Caller("t", foreign=True), memory_context=ANNA), Reason.FOREIGN_ORIGIN),
        (asked(memory_context=ANNA, memory_config={"enabled": False}), Reason.DISABLED),
        (asked(memory_context=ANNA, mode="write", may_store=False), Reason.DISABLED),
        (asked(), Reason.NO_USER),
        (asked(memory_context=ANNA, messages=TITLE), Reason.HOUSEKEEPING),
        (asked(memory_context=ANNA, messages=TITLE, memory_config={"enabled": True}), None),
        (asked(memory_context=ANNA, messages=TITLE, mode="on"), None),
        (asked(memory_context=ANNA), None),
    ],
)
def test_a_request_without_memory_says_why(found, reason):
    assert found.reason is reason
    assert (found.turn is None) is (reason is not None)


UNDER_OTHER_NAMES = [
    ({"memory_context": ANNA}, "memory_context.user_id"),
    ({"user": "anna", "accept_openai_user": True}, "user"),
    ({"user": "zoe", "safety_identifier": "anna", "accept_openai_user": True}, "safety_identifier"),
]


@pytest.mark.parametrize(("said", "param"), UNDER_OTHER_NAMES)
def test_naming_another_user_is_refused_with_the_field(said, param):
    with pytest.raises(Forbidden) as refused:
        asked(Caller("t", user="zoe"), **said)
    assert refused.value.param == param


CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]}


@pytest.mark.parametrize(
    ("said", "may_loop"),
    [
        ({}, False),
        ({"tools": [{"type": "function"}]}, True),
        ({"tools": [], "messages": [{"role": "user", "content": "When?"}, CALLED]}, True),
        ({"messages": [{"role": "user", "content": "When?"}, {"role": "tool", "content": "7:30"}]}, True),
        ({"messages": [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "?"}]}, False),
        ({"messages": [{"role": "user", "content": "When?"}, None, 7]}, False),
    ],
)
def test_a_tool_loop_is_known_by_its_history_too(said, *, may_loop):
    turn = asked(memory_context=ANNA, **said).turn
    assert turn is not None
    assert turn.may_loop is may_loop


IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f"}}]}


@pytest.mark.parametrize(
    ("behind", "query"),
    [
        ([], "Q2"),
        ([{"role": "user", "content": IMAGE}, {"role": "user", "content": " "}], "Q2"),
        ([{"role": "user", "content": IMAGE}, CALL, {"role": "tool", "content": "x"}], "Q2"),
        ([CALL, {"role": "tool", "content": "x"}, {"role": "user", "content": IMAGE}], "Q2"),
        ([{"role": "assistant", "content": "A2"}, {"role": "user", "content": IMAGE}], ""),
    ],
    ids=["alone", "with-images", "and-tools", "shown-by-a-tool", "an-image-that-was-not-asked-about"],
)
def test_a_question_may_precede_its_images(behind, query):
    before = [{"role": "user", "content": "Q1"}, {"role": "assistant", "content": "A1"}]
    messages = [*before, {"role": "user", "content": "Q2"}, *behind]
    turn = asked(memory_context=ANNA, messages=messages).turn
    assert turn is not None
    assert turn.query == query
