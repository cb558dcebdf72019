"""Log, metrics and spans: their format, and the name of every metric.

A log line is a constant dotted event with facts as keys: counts, ids, milliseconds. Never memory text,
prompts, keys or user ids; metrics carry no user ids either (personal data, unbounded cardinality).
"""

import asyncio
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Literal, TextIO, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from proxy.domain.errors import ConfigError

# structlog imports rich for tracebacks that are never printed here: 5 MB and 0.05 s of every start.
_lacks_rich = sys.modules.setdefault("rich", None) is None  # type: ignore[arg-type]
import structlog  # noqa: E402

if _lacks_rich:
    del sys.modules["rich"]

log: Any = structlog.get_logger()

GaugeMode = Literal["mostrecent", "livesum", "livemax"]


def configure(level: str, style: str) -> None:
    """Send our log and the libraries' to standard error, as `style` "json" or "console"."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            lambda logger, method, event: {**event, **trace_ids()},
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # Each line is one write: several worker processes write to the same file.
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Stderr())),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_LibraryHandler()])
    logging.getLogger("uvicorn.error").addFilter(_is_error)


def bind(**facts: str) -> None:
    """Add the facts to every further line of this task and of the tasks that it starts."""
    structlog.contextvars.bind_contextvars(**facts)


class _LibraryHandler(logging.Handler):
    """Writes what libraries log in our format, so that one program can read all lines."""

    def emit(self, record: logging.LogRecord) -> None:
        facts = {"logger": record.name, "message": record.getMessage().strip()}
        if record.exc_info and record.exc_info[1] is not None:
            facts["exception"] = "".join(traceback.format_exception(record.exc_info[1]))
        (log.error if record.levelno >= logging.ERROR else log.warning)("library.logged", **facts)


def _is_error(record: logging.LogRecord) -> bool:
    """False for a log record of uvicorn that is not an error: an answer that the upstream cut short is cut
    short on purpose; so is one that is still running after `server.shutdown_seconds`."""
    if record.msg.startswith("Cancel %s running task"):
        log.warning("process.answers_cut", requests=cast(tuple[Any, ...], record.args)[0])
        return False
    is_cut = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not is_cut and "without completing response" not in record.getMessage()


class _Stderr:
    """Standard error as it is at the time of a write, not when logging was set up.

    If it cannot be written, on a full disk or to a closed terminal, the line is lost and the request
    succeeds."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


LEVELS = ("info", "warning", "error")
REMIND_S = 60.0  # between two equal log lines


class ThrottledLog:
    """Logs what would come with every request, or every second, while some trouble lasts: the first line at
    once, then one a minute with `left_out`, the number of lines left out before it. Lines are equal if event
    and facts are: pass facts with few values, such as the names of errors."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._repetitions: dict[tuple[str, ...], tuple[float, int]] = {}  # when logged, left out since then
        self.info, self.warning, self.error = (partial(self._log, level) for level in LEVELS)

    def _log(self, level: str, event: str, **facts: str) -> None:
        key, now = (event, *facts.values()), self._clock()
        logged_at, left_out = self._repetitions.get(key, (float("-inf"), 0))
        if 0 <= now - logged_at < REMIND_S:  # below 0: the clock was set back
            self._repetitions[key] = (logged_at, left_out + 1)
            return
        self._repetitions[key] = (now, 0)
        getattr(log, level)(event, **facts, **({"left_out": left_out} if left_out else {}))


# ---------------------------------------------------------------- Prometheus metrics
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.5, 1, 5, 30, 120)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._answers: dict[tuple[str, int], Counter] = {}  # the children of `requests`: `labels` is slow
        self._add_requests()
        self._add_learning()
        self._add_health()

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"memory_proxy_{name}_total", about, labels, registry=self.registry)

    def _histogram(
        self, name: str, about: str, *labels: str, buckets: Sequence[float] = _SECONDS
    ) -> Histogram:
        return Histogram(
            f"memory_proxy_{name}_seconds", about, labels, buckets=buckets, registry=self.registry
        )

    def _gauge(self, name: str, about: str, *labels: str, of_processes: GaugeMode = "mostrecent") -> Gauge:
        """`of_processes`: how /metrics joins the values of several worker processes."""
        name = f"memory_proxy_{name}"
        return Gauge(name, about, labels, multiprocess_mode=of_processes, registry=self.registry)

    def _add_requests(self) -> None:
        counter, histogram = self._counter, self._histogram
        self.requests = counter("requests", "Requests answered, by route and status class", "route", "status")
        about = "Requests of web pages or under host names that are not allowed, by X-Memory-Reason"
        self.not_trusted = counter("browser_requests_not_trusted", about, "reason")
        about = "Client connections refused, or closed while they waited: refused, displaced, head_timeout, …"
        self.connections_ended = counter("connections_ended", about, "reason")
        about = "Tokens of intercepted requests and answers, if the upstream reports them"
        self.model_tokens = counter("model_tokens", about, "direction")
        about = "Requests sent again because the upstream refused their form, by what was changed"
        self.form_retries = counter("form_retries", about, "changed")
        self.memory_seconds = histogram("memory", "Time that memory added before the upstream was asked")
        self.stage_seconds = histogram("stage", "Time of one stage of the read path", "stage")
        self.recalls = counter("recalls", "Requests with memory, by X-Memory-Status", "status")
        about = "Memories injected, and documents, as X-Memory-Count counts them"
        self.injected = counter("injected_memories", about)
        self.injected_tokens = counter("injected_tokens", "Tokens of injected blocks")
        about = "Memory work that failed and was left out, by operation and error"
        self.failures = counter("memory_failures", about, "operation", "error")

    def _add_learning(self) -> None:
        counter, histogram, gauge = self._counter, self._histogram, self._gauge
        self.stored = counter(
            "stored_memories", "Memories written by extraction, by kind of change", "change"
        )
        about = "Time from a message to its memories stored, by lane (1 explicit, 2 ordinary, 3 batch)"
        buckets: Sequence[float] = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
        self.said_to_stored = histogram("said_to_stored", about, "lane", buckets=buckets)
        self.job_outcomes = counter("job_outcomes", "Outcomes of extraction jobs, by lane", "lane", "outcome")
        self.evolved = counter("evolved", "Memories changed by the background pass", "step", "action")
        about = "Steps of the background pass for one user, and how they ended"
        self.evolution_seconds = histogram("evolution", about, "step", "outcome")
        about, buckets = "Our own LLM calls, by role and how they ended", (0.1, 0.3, 1, 2, 5, 10, 20, 30, 60)
        self.model_calls = histogram("model_call", about, "role", "ended", buckets=buckets)
        about = "Tokens of our own LLM calls, if the endpoint reports them"
        self.model_call_tokens = counter("model_call_tokens", about, "role", "direction")
        about = "Remaining LLM calls of this hour"
        self.calls_left = gauge("model_calls_left", about, of_processes="livesum")
        self.jobs = gauge("jobs", "Extraction jobs, by state", "state")
        self.queued = gauge("queued_jobs", "Queued jobs, by lane (1 explicit, 2 ordinary, 3 batch)", "lane")
        about = "Age of the oldest queued extraction job, 0 without one"
        self.oldest_job = gauge("oldest_queued_job_seconds", about)

    def _add_health(self) -> None:
        counter, gauge = self._counter, self._gauge
        about = "Free space on the disk of the data directory, with storage.backend sqlite"
        # Labelled: without a label the gauge would be 0 with another backend.
        self.disk_free = gauge("disk_free_bytes", about, "disk")
        about = "Times that cache.redis_url failed: limits are counted without it until it is back"
        self.cache_outages = counter("cache_outages", about)
        about = "Searches that were exact because Qdrant did not answer (storage.vectors qdrant)"
        self.index_fallbacks = counter("index_fallbacks", about)
        about = "0 full, 1 without the judge, 2 lexical only, 3 session memory only, 4 none"
        self.degraded = gauge("degradation_level", about, of_processes="livemax")

    def count_answer(self, route: str, status: int) -> None:
        """Count a request that is answered with this status."""
        counter = self._answers.get((route, status // 100))
        if counter is None:
            counter = self.requests.labels(route, f"{status // 100}xx")
            self._answers[route, status // 100] = counter
        counter.inc()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = perf_counter()
        try:
            with span(f"memory.{name}"):
                yield
        finally:
            self.stage_seconds.labels(name).observe(perf_counter() - started)

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format: of all processes that share a directory."""
        if SHARED not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        collector: Any = MultiProcessCollector  # has no types
        collector(together)
        return generate_latest(together)


SHARED = "PROMETHEUS_MULTIPROC_DIR"  # read by prometheus_client where it is imported


def share_metrics(directory: Path) -> None:
    """Let processes that are started from now on count together in an empty directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)
    os.environ[SHARED] = str(directory)


def forget_process(pid: int) -> None:
    """Remove the gauges of a process that has died."""
    if SHARED in os.environ:
        mark_dead: Any = mark_process_dead
        mark_dead(pid)


# ---------------------------------------------------------------- OpenTelemetry spans (tracing.endpoint)
# Named by its conventions for generative AI. Spans have names, counts and times: never a text, a user or a
# credential. Without an endpoint a span costs one comparison.
Kind = Literal["server", "client", "internal"]
Value = str | int | float | bool
Header = tuple[bytes, bytes]

_TRACE_HEADERS = (b"traceparent", b"tracestate")


class Span:
    """A running span; without tracing its methods do nothing."""

    __slots__ = ("_span",)

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def __enter__(self) -> "Span":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set(self, **attributes: Value | None) -> None:
        """Set attributes; a double underscore becomes a dot. None: unknown, left out."""
        if self._span is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._span.set_attribute(name.replace("__", "."), value)

    def route(self, method: str, route: str) -> None:
        """Name the span of a request after its route."""
        if self._span is not None:
            self._span.update_name(f"{method} {route}")
            self.set(http__request__method=method, http__route=route)

    def fail(self, kind: str) -> None:
        """Mark the span as failed with this kind of error. No message: it may quote a conversation."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR))


_NONE = Span()
_tracer: Any = None


def span(name: str, kind: Kind = "internal", headers: Sequence[Header] = ()) -> AbstractContextManager[Span]:
    """Record the block as a child of the current span, or of the caller's span that the headers name."""
    return _NONE if _tracer is None else _recorded(name, kind, headers)


@contextmanager
def _recorded(name: str, kind: Kind, headers: Sequence[Header]) -> Iterator[Span]:
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    traced = (header for header in headers if header[0] in _TRACE_HEADERS)
    carried = {name.decode("latin-1"): value.decode("latin-1") for name, value in traced}
    with _tracer.start_as_current_span(
        name,
        context=TraceContextTextMapPropagator().extract(carried) if carried else None,
        kind=SpanKind[kind.upper()],
        record_exception=False,  # an exception's text may hold anything
        set_status_on_exception=False,
    ) as started:
        running = Span(started)
        try:
            yield running
        except BaseException as error:
            running.fail(type(error).__name__)
            raise


def with_trace_headers(headers: Sequence[Header]) -> list[Header]:
    """Return the headers with the current span as the parent of the spans that the receiver records."""
    if _tracer is None:
        return list(headers)
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carried: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carried)
    if not carried:
        return list(headers)
    others = [header for header in headers if header[0].lower() not in _TRACE_HEADERS]
    return others + [(name.encode(), value.encode()) for name, value in carried.items()]


def current_span() -> Span:
    """Return the innermost running span."""
    if _tracer is None:
        return _NONE
    from opentelemetry.trace import get_current_span

    return Span(get_current_span())


def trace_ids() -> Mapping[str, str]:
    """Return the ids of the current span, for a log line."""
    if _tracer is None:
        return {}
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def start_tracing(endpoint: str, *, sample: float, service: str, version: str, processor: Any = None) -> Any:
    """Record spans from now on and send them to an OTLP/HTTP endpoint; return the argument of `stop_tracing`.

    Raises ConfigError if the packages are missing. `processor` replaces the exporter in tests."""
    global _tracer
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        remedy = "run scripts/install otel"
        raise ConfigError(f"tracing.endpoint needs the OpenTelemetry packages: {remedy}") from error
    resource = Resource.create({"service.name": service, "service.version": version})
    provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(sample)))
    provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    _tracer = provider.get_tracer("memory-proxy", version)
    return provider


def stop_tracing(provider: Any) -> None:
    """Send the remaining spans and record no more."""
    global _tracer
    _tracer = None
    provider.shutdown()
