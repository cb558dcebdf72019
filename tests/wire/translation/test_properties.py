"""Whatever the pieces: `support.check` holds what every stream promises; here it meets all of them."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.wire.translation.support import call, delta, final, streamed, translation

Json = dict[str, Any]
TEXTS = st.text(max_size=12)
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.integers() | TEXTS, max_size=3).map(json.dumps)


@st.composite
def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """Return the text cut at any places."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=5)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def interleaved_calls(draw: st.DrawFn) -> tuple[list[str], list[Json]]:
    """Return the arguments of some calls, and the chunks that bring them in any order."""
    arguments = draw(st.lists(ARGUMENTS, min_size=1, max_size=4))
    queues = []
    for index, whole in enumerate(arguments):
        rest = draw(pieces(whole))
        queues.append(
            [call(index, f"c{index}", f"f{index}", ""), *(call(index, None, None, p) for p in rest)]
        )
    chunks = []
    while live := [queue for queue in queues if queue]:
        chunks.append(delta(**draw(st.sampled_from(live)).pop(0)))
    return arguments, chunks


@settings(max_examples=examples(25))
@given(st.data(), st.text(), st.text(min_size=1), interleaved_calls())
def test_any_cutting_gives_the_same_output(data, thoughts, text, calls):
    arguments, call_chunks = calls
    chunks = [delta(reasoning=piece) for piece in data.draw(pieces(thoughts))]
    chunks += [delta(content=piece) for piece in data.draw(pieces(text))]
    output = final(streamed([*chunks, *call_chunks, delta("tool_calls")]))["output"]
    message = {"content": text, "reasoning": thoughts}
    making = translation()
    making.complete({"choices": [{"message": message, "finish_reason": "stop"}]})
    spoken = [item for item in output if "call_id" not in item]
    assert spoken == making.response["output"]
    stated = {item["name"]: item["arguments"] for item in output if "call_id" in item}
    assert stated == {f"f{index}": whole for index, whole in enumerate(arguments)}


FRAGMENT = st.builds(
    call,
    st.none() | st.integers(0, 2),
    st.none() | st.sampled_from(["", "c1", "c2"]),
    st.none() | st.sampled_from(["", "f", "patch"]),
    st.sampled_from(["", "{", "}", '"a":', "1", '{"input":"x"}', "\ud83d"]),
)
CHUNK = st.one_of(
    st.builds(lambda text: delta(content=text), TEXTS | st.sampled_from(["\ud83d", "\ude00"])),
    st.builds(lambda text: delta(refusal=text), TEXTS),
    st.builds(lambda text: delta(reasoning_content=text), TEXTS),
    st.builds(lambda fragment: delta(**fragment), FRAGMENT),
    st.just({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
    st.sampled_from([delta("stop"), delta("length"), delta("content_filter"), delta("error")]),
    st.just({"error": {"message": "overloaded"}}),
)


@settings(max_examples=examples(40))
@given(st.lists(CHUNK, max_size=12), st.booleans(), st.booleans(), st.sampled_from([{}, {"summary": "auto"}]))
def test_any_stream_keeps_every_promise(chunks, ended_well, cut, reasoning):
    events = streamed(
        chunks, ended_well=ended_well, cut=cut, reasoning=reasoning,
        tools=[{"type": "custom", "name": "patch"}],
    )  # fmt: skip
    assert all(item["status"] in ("completed", "incomplete") for item in final(events)["output"])


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DELTA_NAMES = (
    *(
        "content", "refusal", "reasoning", "reasoning_content", "reasoning_details", "tool_calls",
        "annotations",
    ),
    *("function_call", "audio", "extra_content"),
)  # fmt: skip


@settings(max_examples=examples(25))
@given(st.lists(st.dictionaries(st.sampled_from(DELTA_NAMES), ANY_JSON), max_size=4), ANY_JSON)
def test_nonsense_from_the_upstream_breaks_no_promise(deltas, elsewhere):
    chunks = [{**delta(**fields), "usage": elsewhere, "service_tier": elsewhere} for fields in deltas]
    chunks += [{"choices": [{"message": fields, "logprobs": elsewhere}]} for fields in deltas]
    streamed([*chunks, {"choices": elsewhere}, {"choices": [elsewhere]}, delta("stop")])
    streamed([{"error": elsewhere}, {"choices": [{"error": elsewhere}]}, delta("stop")])
