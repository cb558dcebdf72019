"""Spans of a request with memory: their parents, and what they never contain."""

import httpx2
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proxy import telemetry

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
SECRET = "My budget for the Hawaii trip is $10,000."


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    provider = telemetry.start_tracing(
        "unused", sample=1.0, service="test", version="0", processor=SimpleSpanProcessor(exporter)
    )
    yield exporter
    telemetry.stop_tracing(provider)


async def ask(origin: str, **headers: str) -> httpx2.Response:
    body = {
        "model": "m-1",
        "messages": [{"role": "user", "content": SECRET}],
        "memory_context": {"user_id": "alice-the-user"},
    }
    async with httpx2.AsyncClient(timeout=30) as http:
        return await http.post(f"{origin}/v1/chat/completions", json=body, headers=headers)


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    ours = (span for span in spans.get_finished_spans() if f"{span.context.trace_id:032x}" == TRACE)
    return next(span for span in ours if span.name == name)


async def test_a_request_is_a_span_of_the_callers_trace_which_the_upstream_continues(house, spans):
    async with house() as h:
        answer = await ask(h.origin, traceparent=PARENT)
        assert answer.status_code == 200
        carried = dict(h.upstream.requests[0].headers)[b"traceparent"].decode()
    server, asked = named(spans, "POST chat"), named(spans, "chat m-1")
    assert asked.parent is not None
    assert asked.parent.span_id == server.context.span_id
    assert carried == f"00-{TRACE}-{asked.context.span_id:016x}-01"
    assert asked.attributes is not None
    assert asked.attributes["gen_ai.request.model"] == "m-1"
    assert server.attributes is not None
    assert server.attributes["http.response.status_code"] == 200
    assert server.attributes["memory.status"] in ("none", "injected")
    recall, search = named(spans, "memory.recall"), named(spans, "memory.search")
    assert search.parent is not None
    assert search.parent.span_id == recall.context.span_id


async def test_no_span_contains_texts_or_users(house, spans):
    async with house() as h:
        await ask(h.origin, authorization="Bearer sk-very-secret")
    everything = " ".join(span.to_json() for span in spans.get_finished_spans())
    assert "POST chat" in everything
    for text in ("Hawaii", "10,000", "alice", "sk-very-secret"):
        assert text not in everything


async def test_without_an_endpoint_the_callers_trace_passes_untouched(house):
    async with house() as h:
        await ask(h.origin, traceparent=PARENT)
        assert dict(h.upstream.requests[0].headers)[b"traceparent"].decode() == PARENT


async def test_every_stage_of_a_recall_is_timed(house):
    async with house() as h:
        await ask(h.origin)
        async with httpx2.AsyncClient(timeout=30) as http:
            metrics = (await http.get(f"{h.origin}/metrics")).text
    for stage in ("decide", "query", "search", "inject"):
        assert f'memory_proxy_stage_seconds_count{{stage="{stage}"}}' in metrics
