"""Logs and metrics: how they look, and every metric's name.

A log line is a constant dotted event with facts as keys: counts, ids, milliseconds. Never memory text,
prompts, keys or user ids; metrics carry no user ids either (personal data, unbounded cardinality).
"""

import logging
import sys
from typing import Any, TextIO, cast

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

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
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Stderr())),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    # An answer cut short by the upstream is cut short by us on purpose; uvicorn calls that an error.
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: "without completing response" not in record.getMessage()
    )


class _Stderr:
    """Standard error as it is when something is written, not when logging was set up."""

    def write(self, text: str) -> None:
        sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.5, 1, 5, 30, 120)


class Metrics:
    """The Prometheus metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "memory_proxy_requests_total",
            "Requests answered, by route and status class",
            ["route", "status"],
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
            "memory_proxy_injected_memories_total", "Memories injected", registry=self.registry
        )
        self.injected_tokens = Counter(
            "memory_proxy_injected_tokens_total", "Tokens of injected blocks", registry=self.registry
        )
        self.failures = Counter(
            "memory_proxy_memory_failures_total",
            "Memory work that failed and was left out, by operation and error",
            ["operation", "error"],
            registry=self.registry,
        )
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
        self.calls_left = Gauge(
            "memory_proxy_model_calls_left", "What is left of the hour's LLM calls", registry=self.registry
        )
        self.jobs = Gauge("memory_proxy_jobs", "Extraction jobs, by state", ["state"], registry=self.registry)
        self.degraded = Gauge(
            "memory_proxy_degradation_level",
            "0 full, 1 lexical only, 2 session memory only, 3 none",
            registry=self.registry,
        )

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)
