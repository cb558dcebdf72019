"""What the translation's tests share: chat chunks as upstreams send them, and the official SDK as judge."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, get_args

from openai.types.responses import Response, ResponseStreamEvent

from proxy.wire.translation.request import plan
from proxy.wire.translation.response import Translation, encode

Json = dict[str, Any]
# Distinguished by type, as in the SDK; pydantic alone would try all sixty.
EVENTS: Json = {
    get_args(event.model_fields["type"].annotation)[0]: event
    for event in get_args(get_args(ResponseStreamEvent)[0])
}
TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def delta(finish: str | None = None, **fields: Any) -> Json:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "m-2",
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
    }


def call(index: int | None, id: str | None, name: str | None, arguments: str) -> Json:
    fragment = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [fragment if index is None else {"index": index, **fragment}]}


def translation(**body: Any) -> Translation:
    planned = plan({"model": "m", "input": "Hi", **body}, [])
    return Translation(
        planned, response_id="resp_a1", created_at=1_700_000_000, clock=lambda: 1_700_000_009.5
    )


def streamed(chunks, *, ended_well=True, cut=False, **body):
    """Return all events of a stream, checked."""
    making = translation(**body)
    events = making.start()
    for chunk in chunks:
        events += making.feed(chunk)
    events += making.finish(ended_well=ended_well, cut=cut)
    check(events)
    assert events[-1]["response"] == making.response
    return events


def kinds(events: Iterable[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def final(events: list[Json]) -> Json:
    response: Json = events[-1]["response"]
    return response


def check(events: list[Json]) -> None:
    """What holds for every stream, whatever the upstream did."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert kinds(events)[:2] == ["created", "in_progress"]
    assert [event["type"] in TERMINAL for event in events].index(True) == len(events) - 1
    for event in events:
        name, data, *blank = encode(event).decode().split("\n")
        assert (name, blank) == (f"event: {event['type']}", ["", ""])
        EVENTS[event["type"]].model_validate_json(data.removeprefix("data: "), strict=True)
        assert "" not in (event.get("delta", "-"),)
    for event in events:
        if "response" in event:
            Response.model_validate_json(json.dumps(event["response"]), strict=True)
            assert event["response"]["id"] == "resp_a1"
    _check_items(events)


def _check_items(events: list[Json]) -> None:
    added = [e for e in events if e["type"] == "response.output_item.added"]
    done = [e for e in events if e["type"] == "response.output_item.done"]
    assert [e["output_index"] for e in added] == list(range(len(added)))
    assert Counter(e["item"]["id"] for e in added) == Counter(e["item"]["id"] for e in done)
    by_index = {e["output_index"]: e["item"] for e in done}
    assert final(events)["output"] == [by_index[index] for index in range(len(done))]
    ended: set[str] = set()
    for event in events:
        item_id = event.get("item_id") or event.get("item", {}).get("id")
        assert item_id is None or item_id not in ended, "an event for an item after its done"
        if event["type"] == "response.output_item.done":
            ended.add(item_id)
    for item in by_index.values():
        _check_deltas(item, [e for e in events if e.get("item_id") == item["id"]])


def _check_deltas(item: Json, events: list[Json]) -> None:
    """The deltas add up to what the done events hold, and those to what the item holds."""
    parts = [("content", *each) for each in enumerate(item.get("content", ()))]
    parts += [("summary", *each) for each in enumerate(item.get("summary", ()))]
    for field, index, part in parts:
        event = {"content": "content_part", "summary": "reasoning_summary_part"}[field]
        mine = [e for e in events if e[f"{field}_index"] == index]
        assert kinds(mine)[0] == f"{event}.added"
        assert kinds(mine)[-1] == f"{event}.done"
        assert mine[-1]["part"] == part
        said = part.get("refusal") or part["text"]
        assert "".join(e.get("delta", "") for e in mine) == said
        assert mine[-2].get("refusal", mine[-2].get("text")) == said
        if part["type"] == "output_text":
            assert [p for e in mine if "delta" in e for p in e["logprobs"]] == part["logprobs"]
    if "arguments" in item or "input" in item:
        if item["type"] == "tool_search_call":
            return
        said = item.get("arguments", item.get("input"))
        assert "".join(e.get("delta", "") for e in events) == said
        assert events[-1].get("arguments", events[-1].get("input")) == said
