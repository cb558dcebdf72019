"""Builds the write path: recorder, worker, write gate, the hooks for ended sessions, and documents."""

from dataclasses import dataclass
from functools import partial

from proxy import telemetry
from proxy.admit.gate import Gate
from proxy.admit.safety import PII, SafetyPolicy, redact
from proxy.app.library import library_of
from proxy.config import MemorySettings, Privacy, Settings
from proxy.domain.judging import Judge
from proxy.domain.limits import CallQuota
from proxy.domain.ports import Clock, Completer, Stores
from proxy.learn.budget import CallBounds, CallOutcome, Load, MeteredCompleter, TurnPriority
from proxy.learn.documents import DocumentIngester
from proxy.learn.recorder import AccessCounts, ExchangeRecorder
from proxy.learn.session_notes import NoteWriter
from proxy.learn.triggers import TopicDrift, TriggerPolicy, on_completion
from proxy.learn.worker import JobReport, Worker, WorkerConfig, WorkerPace, WorkerTools
from proxy.models.embedder import OnnxEmbedder
from proxy.recall.history import mark
from proxy.recall.query import readable


@dataclass(frozen=True, slots=True)
class WritePath:
    """The parts of one process that write."""

    safety: SafetyPolicy
    gate: Gate
    keeper: NoteWriter
    worker: Worker
    recorder: ExchangeRecorder
    touches: AccessCounts
    library: DocumentIngester
    turns: TurnPriority  # entered around each turn


def write_path(
    settings: Settings,
    stores: Stores,
    embedder: OnnxEmbedder | None,
    completer: Completer,
    metrics: telemetry.Metrics,
    clock: Clock,
    judge: Judge | None = None,
    calls: CallQuota | None = None,
) -> WritePath:
    """Return the parts, not running yet. None of them waits for a request, nor lets one wait. `calls`: where
    the hour's model calls are counted; None: in the stores."""
    memory, safety = settings.memory, _safety(settings.privacy)
    quiet = embedder.in_background() if embedder else None
    gate = Gate(
        stores.memories,
        quiet,
        memory.min_confidence,
        policy=safety,
        ttl_days=memory.ttl_days,
        judge=judge,
    )
    policy = TriggerPolicy(memory.extraction_batch_size, memory.idle_seconds, memory.personal_idle_seconds)
    # Our own calls are metered; but the rewrite of a query is not: a request waits for it.
    load = Load(_bounds(memory), clock, calls or stores.calls)
    metered = MeteredCompleter(completer, load, lambda call: _called(metrics, load, call))
    keeper = NoteWriter(
        stores.notes,
        metered,
        mark,
        policy=safety,
        step_turns=memory.compress_step_turns,
        summaries=memory.session_summaries and memory.extraction == "llm",
        idle_seconds=memory.idle_seconds,
        judge=judge,
    )
    turns = TurnPriority()
    worker = Worker(
        WorkerTools(
            stores.jobs,
            stores.sessions,
            gate,
            metered,
            closing=keeper.closing,
            state=keeper.refresh,
            drift=TopicDrift(stores.sessions, quiet) if quiet else None,
            load=load,
            turns=turns,
            shared=settings.server.workers > 1 or settings.storage.backend != "sqlite",
        ),
        WorkerConfig(memory.extraction, policy, _pace(memory, _longest_call_s(settings))),
        clock=clock,
        report=lambda report: _count(metrics, report),
    )
    stores.on_queued(worker.wake.set)
    recorder = ExchangeRecorder(
        sessions=stores.sessions,
        trigger=on_completion(policy),
        wake=worker.wake,
        redact=partial(redact, policy=safety),
        judge=judge,
        notes=stores.notes,
        default_timezone=memory.timezone,
        gist=readable if memory.conversational_forget else None,
    )
    touches, library = AccessCounts(stores.memories, clock), library_of(stores, quiet, safety, clock)
    return WritePath(safety, gate, keeper, worker, recorder, touches, library, turns)


def _called(metrics: telemetry.Metrics, load: Load, call: CallOutcome) -> None:
    metrics.model_calls.labels(call.role, call.ended).observe(call.seconds)
    if (left := load.calls_left()) is not None:
        metrics.calls_left.set(left)


def _count(metrics: telemetry.Metrics, report: JobReport) -> None:
    metrics.job_outcomes.labels(str(report.lane), report.outcome).inc()
    if report.since_said_s is not None:
        metrics.said_to_stored.labels(str(report.lane)).observe(report.since_said_s)
    for change in ("created", "superseded", "confirmed", "held"):
        metrics.stored.labels(change).inc(getattr(report, change))


def _safety(privacy: Privacy) -> SafetyPolicy:
    return SafetyPolicy(
        pii={name: getattr(privacy, name) for name in PII},
        quarantine=privacy.quarantine,
    )


def _bounds(memory: MemorySettings) -> CallBounds:
    return CallBounds(
        concurrency=memory.extraction_concurrency,
        peak=memory.extraction_peak,
        calls_per_hour=memory.extraction_calls_per_hour,  # of all processes that share the stores
    )


def _longest_call_s(settings: Settings) -> float:
    """Return how long one of our own calls may take."""
    others = (model.llm_timeout_seconds for model in settings.external_models)
    return max(settings.memory.llm_timeout_seconds, *others, 0)


def _pace(memory: MemorySettings, longest_call_s: float) -> WorkerPace:
    return WorkerPace(
        lease_seconds=max(180, 2 * longest_call_s + 60),
        batch_limit=memory.extraction_batch_size + 5,
        sweep_seconds=min(5.0, max(0.2, memory.personal_idle_seconds / 3)),
    )
