"""Whatever way the upstream chooses to answer, the response comes out the same."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.http.responses.answer_output import TERMINAL, AnswerParser
from proxy.wire.translation.request import plan
from proxy.wire.translation.response import Translation
from tests.support.upstream import completion, completion_events, split

STREAM = b": keep-alive\n\n" + b"".join(completion_events("Grüße", " aus", " 東京"))
DOCUMENT = json.dumps(completion("Grüße aus 東京")).encode()


def heard(body, *, cuts=None, kind="", coding="", cut=False):
    translation = Translation(
        plan({"model": "m", "input": "Hi"}, ()), response_id="resp_1", created_at=1, clock=lambda: 2.0
    )
    listener = AnswerParser(translation, kind, coding)
    events = translation.start()
    for piece in split(body, cuts or []):
        events += listener.feed(piece)
    events += listener.end(cut=cut)
    return events, listener, translation.response


@given(st.lists(st.integers(0, len(STREAM))))
def test_a_stream_means_the_same_however_it_is_split(cuts):
    assert heard(STREAM, cuts=cuts, kind="text/event-stream")[0] == heard(STREAM)[0]


@given(st.lists(st.integers(0, len(DOCUMENT))))
def test_a_document_means_the_same_however_it_is_split(cuts):
    events, _, response = heard(DOCUMENT, cuts=cuts)
    assert response["output"][0]["content"][0]["text"] == "Grüße aus 東京"
    assert sum(event["type"] in TERMINAL for event in events) == 1


def ends_whole(stream: bytes) -> bool:
    """True if the stream's last line is a whole event, be it without its line ends."""
    with contextlib.suppress(ValueError):
        return bool(json.loads(stream.rstrip(b"\n").rpartition(b"\n")[2].removeprefix(b"data: ")))
    return False


# With `Connection: close` and no length, an upstream that dies looks like one that ended in order.
@pytest.mark.parametrize("cut", [True, False], ids=["seen to be cut", "seemingly in order"])
@pytest.mark.parametrize("kind", ["text/event-stream", "text/plain"])
def test_a_stream_that_is_cut_before_its_finish_reason_fails(cut, kind):
    for end in range(0, STREAM.index(b'"stop"'), 7):
        events, _, response = heard(STREAM[:end], kind=kind, cut=cut)
        # Without an event of its end, a stream that ends in order behind an event with text is believed.
        is_believed = not cut and b"Gr" in STREAM[:end] and ends_whole(STREAM[:end])
        assert response["status"] == ("completed" if is_believed else "failed")
        assert events[-1]["type"] == f"response.{response['status']}"


def test_an_error_in_the_middle_fails_the_response_with_its_words():
    body = STREAM[:300].rpartition(b"data:")[0] + b'data: {"error": {"message": "overloaded"}}\n\n'
    assert heard(body)[2]["error"]["message"] == "overloaded"


def test_nonsense_is_not_an_answer():
    for body in (b"", b"<html>", b"[]", b"{}", b'{"choices": []}', DOCUMENT[:-5]):
        _, listener, response = heard(body)
        assert response["status"] == "failed", body
        assert listener.broken or body == b"", body
    assert heard(b'{"error": {"message": "kaput"}}')[1].broken == "kaput"
    assert heard(DOCUMENT, cut=True)[2]["status"] == "failed"
