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
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Literal, TextIO, cast

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from proxy.domain.errors import ConfigError

log: Any = structlog.get_logger()


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
            _traced,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # A line in one piece: several worker processes write to the same file.
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Stderr())),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_OfLibraries()])
    logging.getLogger("uvicorn.error").addFilter(_is_trouble)


def bind(**facts: str) -> None:
    """Let every further line of this task, and of those that it starts, hold the facts."""
    structlog.contextvars.bind_contextvars(**facts)


class _OfLibraries(logging.Handler):
    """Writes what libraries log as lines of ours, so that all lines can be read by one program."""

    def emit(self, record: logging.LogRecord) -> None:
        facts = {"logger": record.name, "message": record.getMessage().strip()}
        if record.exc_info and record.exc_info[1] is not None:
            facts["exception"] = "".join(traceback.format_exception(record.exc_info[1]))
        (log.error if record.levelno >= logging.ERROR else log.warning)("library.logged", **facts)


def _is_trouble(record: logging.LogRecord) -> bool:
    """False for what uvicorn calls an error and is none: an answer that the upstream cut short is cut short
    by us on purpose; so is, at the end of `server.shutdown_seconds`, one that is still under way."""
    if record.msg.startswith("Cancel %s running task"):
        log.warning("process.answers_cut", requests=cast(tuple[Any, ...], record.args)[0])
        return False
    is_cut = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not is_cut and "without completing response" not in record.getMessage()


def _traced(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add which span a line belongs to."""
    event.update(current())
    return event


class _Stderr:
    """Standard error as it is when something is written, not when logging was set up.

    Where it cannot be written, on a full disk or to a terminal that was closed, a line is lost: nothing else
    is, least of all the request that it was about."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


REMIND_S = 60.0  # between two log lines that say the same


@dataclass(slots=True)
class _Told:
    at: float = float("-inf")
    left_out: int = 0  # since then


class Seldom:
    """Logs what would come with every request, or every second, while some trouble lasts: the first line at
    once, then one a minute with `left_out`, the number of lines that it stands for beside itself. Lines are
    the same where event and facts are: give it facts of few values, such as the names of errors."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._told: dict[tuple[str, ...], _Told] = {}

    def info(self, event: str, **facts: str) -> None:
        """Log it as information, unless it was said less than a minute ago."""
        self._tell("info", event, facts)

    def warning(self, event: str, **facts: str) -> None:
        """Log a warning, unless it was said less than a minute ago."""
        self._tell("warning", event, facts)

    def error(self, event: str, **facts: str) -> None:
        """Log an error, unless it was said less than a minute ago."""
        self._tell("error", event, facts)

    def _tell(self, level: str, event: str, facts: dict[str, str]) -> None:
        told, now = self._told.setdefault((event, *facts.values()), _Told()), self._clock()
        if 0 <= now - told.at < REMIND_S:  # below: the clock was set back
            told.left_out += 1
            return
        more = {"left_out": told.left_out} if told.left_out else {}
        told.at, told.left_out = now, 0
        getattr(log, level)(event, **facts, **more)


_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.5, 1, 5, 30, 120)


class Metrics:
    """The Prometheus metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._of_requests()
        self._of_writing()
        self._of_health()

    def _of_requests(self) -> None:
        """Make those of the read path."""
        self.requests = Counter(
            "memory_proxy_requests_total",
            "Requests answered, by route and status class",
            ["route", "status"],
            registry=self.registry,
        )
        self.not_trusted = Counter(
            "memory_proxy_browser_requests_not_trusted_total",
            "Requests of web pages or under host names that are not allowed, by X-Memory-Reason",
            ["reason"],
            registry=self.registry,
        )
        self.connections_ended = Counter(
            "memory_proxy_connections_ended_total",
            "Client connections refused, or closed while they waited: refused, displaced, head_timeout, …",
            ["reason"],
            registry=self.registry,
        )
        self.memory_seconds = Histogram(
            "memory_proxy_memory_seconds",
            "Time that memory added before the upstream was asked",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.recalls = Counter(
            "memory_proxy_recalls_total",
            "Requests with memory, by X-Memory-Status",
            ["status"],
            registry=self.registry,
        )
        self.injected = Counter(
            "memory_proxy_injected_memories_total",
            "Memories injected, and documents, as X-Memory-Count counts them",
            registry=self.registry,
        )
        self.injected_tokens = Counter(
            "memory_proxy_injected_tokens_total", "Tokens of injected blocks", registry=self.registry
        )
        self.model_tokens = Counter(
            "memory_proxy_model_tokens_total",
            "Tokens of intercepted requests and answers, where the upstream told them",
            ["direction"],
            registry=self.registry,
        )
        self.stage_seconds = Histogram(
            "memory_proxy_stage_seconds",
            "Time of one stage of the read path",
            ["stage"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.failures = Counter(
            "memory_proxy_memory_failures_total",
            "Memory work that failed and was left out, by operation and error",
            ["operation", "error"],
            registry=self.registry,
        )

        self.form_retries = Counter(
            "memory_proxy_form_retries_total",
            "Requests asked again because the upstream refused their form, by what was changed",
            ["changed"],
            registry=self.registry,
        )

    def _of_writing(self) -> None:
        """Make those of the write path."""
        self.stored = Counter(
            "memory_proxy_stored_memories_total",
            "Memories written by extraction, by kind of change",
            ["change"],
            registry=self.registry,
        )
        self.said_to_stored = Histogram(
            "memory_proxy_said_to_stored_seconds",
            "Time from what was said to its memories stored, by lane (1 explicit, 2 ordinary, 3 batch)",
            ["lane"],
            buckets=(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
            registry=self.registry,
        )
        self.job_outcomes = Counter(
            "memory_proxy_job_outcomes_total",
            "What became of extraction jobs, by lane",
            ["lane", "outcome"],
            registry=self.registry,
        )
        self.model_calls = Histogram(
            "memory_proxy_model_call_seconds",
            "Our own LLM calls, by role and how they ended",
            ["role", "ended"],
            buckets=(0.1, 0.3, 1, 2, 5, 10, 20, 30, 60),
            registry=self.registry,
        )

    def _of_health(self) -> None:
        """Make those of how it is now."""
        self.calls_left = Gauge(
            "memory_proxy_model_calls_left",
            "What is left of the hour's LLM calls",
            multiprocess_mode="livesum",
            registry=self.registry,
        )
        self.jobs = Gauge(
            "memory_proxy_jobs",
            "Extraction jobs, by state",
            ["state"],
            multiprocess_mode="mostrecent",
            registry=self.registry,
        )
        self.oldest_job = Gauge(
            "memory_proxy_oldest_queued_job_seconds",
            "Age of the oldest queued extraction job, 0 where none is queued",
            multiprocess_mode="mostrecent",
            registry=self.registry,
        )
        self.disk_free = Gauge(
            "memory_proxy_disk_free_bytes",
            "Room on the disk of the data directory, with storage.backend sqlite",
            ["disk"],  # none is told where there is none
            multiprocess_mode="mostrecent",
            registry=self.registry,
        )
        self.cache_outages = Counter(
            "memory_proxy_cache_outages_total",
            "Times that cache.redis_url failed: limits are counted without it until it is back",
            registry=self.registry,
        )
        self.index_fallbacks = Counter(
            "memory_proxy_index_fallbacks_total",
            "Searches that were exact because Qdrant did not answer (storage.vectors qdrant)",
            registry=self.registry,
        )
        self.degraded = Gauge(
            "memory_proxy_degradation_level",
            "0 full, 1 without the judge, 2 lexical only, 3 session memory only, 4 none",
            multiprocess_mode="livemax",
            registry=self.registry,
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what is done in the block."""
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
        collector: Any = MultiProcessCollector  # it has no types, nor has the other
        collector(together)
        return generate_latest(together)


SHARED = "PROMETHEUS_MULTIPROC_DIR"  # read by prometheus_client where it is imported


def share_metrics(directory: Path) -> None:
    """Let the processes that are started from here on count together, from nothing, in a directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)
    os.environ[SHARED] = str(directory)


def forget_process(pid: int) -> None:
    """Leave a process that has died out of what living ones have."""
    if SHARED in os.environ:
        forget: Any = mark_process_dead
        forget(pid)


# ---------------------------------------------------------------- OpenTelemetry spans (tracing.endpoint)
# Named by its conventions for generative AI. Spans carry names, counts and times: never a text, a user or a
# credential. Without an endpoint a span costs a look at a variable.
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
        """Set attributes; a double underscore becomes a dot. None: unknown, left out."""
        if self._span is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._span.set_attribute(name.replace("__", "."), value)

    def route(self, method: str, route: str) -> None:
        """Name the span of a request after its route."""
        if self._span is not None:
            self._span.update_name(f"{method} {route}")
            self.tell(http__request__method=method, http__route=route)

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
        made = Span(started)
        try:
            yield made
        except BaseException as error:
            made.fail(type(error).__name__)
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
    others = [header for header in headers if header[0].lower() not in _CARRIED]
    return others + [(name.encode(), value.encode()) for name, value in carried.items()]


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


def start_tracing(endpoint: str, *, sample: float, service: str, version: str, processor: Any = None) -> Any:
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


def stop_tracing(provider: Any) -> None:
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
