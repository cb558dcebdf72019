"""Spans of a request with memory: their parents, and what they never contain."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proxy import telemetry
from tests.e2e.conftest import House

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


async def ask(h: House, **headers: str) -> None:
    assert (await h.tell(SECRET, "alice-the-user", extra={"model": "m-1"}, **headers)).status_code == 200


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    ours = (span for span in spans.get_finished_spans() if f"{span.context.trace_id:032x}" == TRACE)
    return next(span for span in ours if span.name == name)


async def test_a_request_is_a_span_of_the_callers_trace_and_holds_no_texts_or_users(house, spans):
    async with house() as h:
        await ask(h, traceparent=PARENT, authorization="Bearer sk-very-secret")
        carried = dict(h.upstream.requests[0].headers)[b"traceparent"].decode()
    server, asked = named(spans, "POST chat"), named(spans, "chat m-1")
    recall, search = named(spans, "memory.recall"), named(spans, "memory.search")
    for child, parent in ((asked, server), (search, recall)):
        assert child.parent is not None
        assert child.parent.span_id == parent.context.span_id
    assert carried == f"00-{TRACE}-{asked.context.span_id:016x}-01"
    facts = {**(asked.attributes or {}), **(server.attributes or {})}
    assert (facts["gen_ai.request.model"], facts["http.response.status_code"]) == ("m-1", 200)
    assert facts["memory.status"] in ("none", "injected")
    everything = " ".join(span.to_json() for span in spans.get_finished_spans())
    for text in ("Hawaii", "10,000", "alice", "sk-very-secret"):
        assert text not in everything


async def test_without_an_endpoint_the_callers_trace_passes_and_every_stage_is_timed(house):
    async with house() as h:
        await ask(h, traceparent=PARENT)
        assert dict(h.upstream.requests[0].headers)[b"traceparent"].decode() == PARENT
        async with h.http() as http:
            metrics = (await http.get(f"{h.origin}/metrics")).text
    for stage in ("decide", "query", "search", "inject"):
        assert f'memory_proxy_stage_seconds_count{{stage="{stage}"}}' in metrics
