"""OpenTelemetry spans, where the operator wants them (tracing.endpoint), named by its conventions for
generative AI.

Without it a span costs a look at a variable. Spans carry names, counts and times: never a text, a user or a
credential.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from proxy.errors import ConfigError

Kind = Literal["server", "client", "internal"]
Value = str | int | float | bool
Header = tuple[bytes, bytes]

_CARRIED = (b"traceparent", b"tracestate")


class Span:
    """A span under way; of none, nothing happens."""

    __slots__ = ("_span",)

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def tell(self, **attributes: Value | None) -> None:
        """Set attributes; a double underscore stands for a dot. None: unknown, left out."""
        if self._span is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._span.set_attribute(name.replace("__", "."), value)

    def fail(self, kind: str) -> None:
        """Say that it failed, and with what kind of error: no message, which may quote what was said."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR))


_NONE = Span()
_tracer: Any = None


@contextmanager
def span(name: str, kind: Kind = "internal", headers: Sequence[Header] = ()) -> Iterator[Span]:
    """Record what is done in the block as a span of the one around it, or of the caller's that the headers
    name."""
    if _tracer is None:
        yield _NONE
        return
    from opentelemetry.trace import SpanKind

    with _tracer.start_as_current_span(
        name,
        context=_remote(headers),
        kind=SpanKind[kind.upper()],
        record_exception=False,  # an exception's text may hold anything
        set_status_on_exception=False,
    ) as started:
        told = Span(started)
        try:
            yield told
        except BaseException as error:
            told.fail(type(error).__name__)
            raise


def passed_on(headers: Sequence[Header]) -> list[Header]:
    """Return the headers with the span under way as the parent of whatever the receiver records."""
    if _tracer is None:
        return list(headers)
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carried: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carried)
    if not carried:
        return list(headers)
    kept = [header for header in headers if header[0].lower() not in _CARRIED]
    return kept + [(name.encode(), value.encode()) for name, value in carried.items()]


def under_way() -> Span:
    """Return the span around."""
    if _tracer is None:
        return _NONE
    from opentelemetry.trace import get_current_span

    return Span(get_current_span())


def current() -> Mapping[str, str]:
    """Return what a log line says of the span under way."""
    if _tracer is None:
        return {}
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def start(endpoint: str, *, sample: float, service: str, version: str, processor: Any = None) -> Any:
    """Record spans from now on and send them to an OTLP/HTTP endpoint; returns what `stop` takes. Raises
    ConfigError where the packages are missing. `processor`: in place of the exporter, for tests."""
    global _tracer
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise ConfigError(
            "tracing.endpoint needs the OpenTelemetry packages: run scripts/install otel"
        ) from error
    resource = Resource.create({"service.name": service, "service.version": version})
    provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(sample)))
    provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    _tracer = provider.get_tracer("memory-proxy", version)
    return provider


def stop(provider: Any) -> None:
    """Send what is left, and record nothing more."""
    global _tracer
    _tracer = None
    provider.shutdown()


def _remote(headers: Sequence[Header]) -> Any:
    carried = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in _CARRIED}
    if not carried:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(carried)
