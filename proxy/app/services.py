"""Build, from the settings, the services of one process: stores, models, clients, read path and write
path."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from proxy import telemetry
from proxy.admit.gate import Gate
from proxy.admit.safety import PII, SafetyPolicy, redact, safe_id
from proxy.app.factories import cache_of, network_of, stores_of
from proxy.config import Settings
from proxy.domain.changes import EvolutionPolicy, Step
from proxy.domain.core import DEFAULT_TIMEZONE, Level, MemoryOptions, Message, Scope, Turn
from proxy.domain.errors import ConfigError, StoreError, StoreUnavailable, UnfitStore, WrongModel
from proxy.domain.limits import CallQuota, TurnPriority, trim_heap
from proxy.domain.ports import Clock, Completer
from proxy.http.limits import Ledger
from proxy.http.memory_work import FailOpen
from proxy.http.turns import Zones, mark
from proxy.learn import consolidation, reflection
from proxy.learn.budget import CallBounds, CallOutcome, Load, MeteredCompleter
from proxy.learn.contradictions import Contradictions
from proxy.learn.documents import DocumentIngester
from proxy.learn.evolution import DecayStep, Evolution, StepReport, UseJudge, UseStep
from proxy.learn.recorder import AccessCounts, ExchangeRecorder, TriggerPolicy
from proxy.learn.session_notes import NoteWriter
from proxy.learn.worker import JobReport, TopicDrift, Worker, WorkerConfig, WorkerPace, WorkerTools
from proxy.models.embedder import OnnxEmbedder
from proxy.models.judge import OnnxJudge, load_judge
from proxy.models.load import load_embedder
from proxy.models.reranker import load_reranker
from proxy.models.tokens import Tokens
from proxy.recall import rewrite
from proxy.recall.documents import Shelf
from proxy.recall.pack import Budget
from proxy.recall.prepare import RecallTools, prepare
from proxy.recall.rewrite import QueryRewriter, SearchPlanner
from proxy.recall.search import ProfileSorter, Ranking, Reranking, Searcher
from proxy.recall.triage import Restraint, readable
from proxy.text.dates import local_time, past_period
from proxy.upstream.client import Credentials, Upstream
from proxy.upstream.completer import RoleModel, UpstreamCompleter, load_httpx
from proxy.upstream.connection import ConnectionLimits, Timeouts
from proxy.upstream.forms import Forms, Learning
from proxy.upstream.network import Network

if TYPE_CHECKING:
    from proxy.storage.redis_cache import RedisCache
    from proxy.storage.sql.stores import SqlStores

PROFILE_SHARE = 0.7  # of memory's deadline, for the profile if nothing is searched for
DOCUMENTS_SHARE = 0.5  # of memory's deadline, for the search of documents
WARM_UP_S = 1.0  # what is not ready by then becomes ready while serving
WARM_UP_TURN = Turn(  # goes through the whole read path, for a user without memories
    request_id="",
    scope=Scope("", ""),
    session_id="",
    model="",
    messages=(Message("user", "How much can I spend on my vacation?"),),
    options=MemoryOptions(read=True, write=False, types=None, limit=1, threshold=None),
    at=0.0,
    named=True,
    standalone=True,
)


@dataclass(frozen=True, slots=True)
class Models:
    """The models that could be loaded."""

    embedder: OnnxEmbedder | None  # None: search is lexical
    embedder_source: str  # where its weights are from, "" without an embedder
    judge: OnnxJudge | None


@dataclass(frozen=True, slots=True)
class Learner:
    """The services that write memories, not running yet. No request waits for them."""

    safety: SafetyPolicy
    gate: Gate
    notes: NoteWriter
    worker: Worker
    recorder: ExchangeRecorder
    access_counts: AccessCounts
    documents: DocumentIngester
    evolution: Evolution
    turns: TurnPriority  # entered around each turn


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    clock: Clock
    metrics: telemetry.Metrics
    fail_open: FailOpen
    stores: "SqlStores"
    models: Models
    upstream: Upstream
    credentials: Credentials
    learning: Learning
    learner: Learner
    tools: RecallTools
    zones: Zones
    ledger: Ledger | None  # None: no rate limit is set
    cache: "RedisCache | None"  # None: no Redis is set

    @classmethod
    async def open(
        cls,
        settings: Settings,
        upstream_url: str,
        stack: AsyncExitStack,
        clock: Clock,
        *,
        must_embed: bool = False,
    ) -> "Services":
        """Build the services; `stack` closes them in reverse order.

        Raises ConfigError, also for a missing embedding model if they `must_embed`, before anything is
        changed.
        """
        tokens = Tokens()
        # First and alone: the memory that loading frees again is then used by the models (10 MB).
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(tokens.start()), WARM_UP_S)
        models = await _load_models(settings, stack, must_embed=must_embed)
        metrics = telemetry.Metrics()
        fail_open = FailOpen(time.monotonic, metrics)
        stores = stores_of(settings, metrics.index_fallbacks.inc)
        await _open_at_start(stores, models.embedder, stack)
        network = network_of(settings)
        # The scripted model runs in this process: no HTTP proxy leads to it.
        upstream = _upstream(settings, upstream_url, network if settings.upstream.base_url else Network())
        stack.push_async_callback(upstream.aclose)
        credentials, learning = Credentials(), Learning(Forms(clock), upstream_url, settings.memory.placement)
        with suppress(StoreError):  # forms are learnt again, or read once the store is open
            await learning.forms.sync(stores.forms)
        roles, endpoints = _external_models(settings, network)
        for endpoint in endpoints.values():
            await stack.enter_async_context(endpoint)
        own = RoleModel(timeout_s=settings.memory.llm_timeout_seconds)
        used = partial(_count_usage, metrics)
        completer = UpstreamCompleter(
            upstream, credentials, roles, endpoints, learning=learning, own=own, on_usage=used
        )
        cache = cache_of(settings, metrics.cache_outages.inc)
        if cache is not None:
            stack.push_async_callback(cache.close)
        calls = stores.calls if cache is None else cache.calls(stores.calls)
        base = _Foundation(settings, clock, metrics, stores, models)
        learner = _learner(base, completer, calls)
        tools = _recall_tools(base, tokens)
        # Before the query models are added: the warm-up must not ask one.
        await _warm_up(tools, learner.recorder, fail_open)
        trim_heap()
        ledger = None
        if settings.limits.requests_per_minute or settings.limits.memory_requests_per_minute:
            ledger = Ledger(settings.data_dir / "run" / "limits")  # which all processes share
            stack.callback(ledger.close)
        return cls(
            settings=settings,
            clock=clock,
            metrics=metrics,
            fail_open=fail_open,
            stores=stores,
            models=models,
            upstream=upstream,
            credentials=credentials,
            learning=learning,
            learner=learner,
            tools=await with_query_models(tools, settings, completer, learner.safety, stack),
            zones=Zones(stores.sessions, settings.memory.timezone, clock),
            ledger=ledger,
            cache=cache,
        )


@dataclass(frozen=True, slots=True)
class _Foundation:
    """What the read path and the write path are both built on."""

    settings: Settings
    clock: Clock
    metrics: telemetry.Metrics
    stores: "SqlStores"
    models: Models


# ---------------------------------------------------------------- models and stores
async def _load_models(settings: Settings, stack: AsyncExitStack, *, must_embed: bool) -> Models:
    """Raises ConfigError for an embedding model that does not fit, and if they `must_embed` for a missing
    one."""
    directory, chosen = settings.data_dir / "models", settings.embedding
    loaded = await asyncio.to_thread(
        load_embedder,
        directory,
        model=chosen.model,
        path=chosen.path,
        allow_download=chosen.allow_download,
        threshold=settings.memory.default_similarity_threshold,
    )
    embedder = loaded.embedder
    if embedder is not None:
        stack.callback(embedder.close)
        if (dimension := embedder.model.dimension) != chosen.dimension:
            raise ConfigError(
                f"the model {embedder.model.name} makes vectors of {dimension} dimensions, and "
                f"embedding.dimension is {chosen.dimension}: set embedding.dimension to {dimension}"
            )
        if chosen.path is not None and loaded.source != "directory":
            telemetry.log.warning("embedding.path_unusable", taken=loaded.source, notes=loaded.notes)
    elif must_embed:
        why = "; ".join(loaded.notes)
        raise ConfigError(f"the embedding model cannot be loaded: search would be by words only ({why})")
    else:
        telemetry.log.error("embedding.unavailable", notes=loaded.notes, level=Level.LEXICAL.value)
    judged = await asyncio.to_thread(load_judge, directory, embedder)
    if judged.judge is None:
        telemetry.log.error("judge.unavailable", note=judged.note, level=Level.UNJUDGED.value)
    else:
        stack.callback(judged.judge.close)
    return Models(embedder, loaded.source if embedder else "", judged.judge)


async def _open_at_start(stores: "SqlStores", embedder: OnnxEmbedder | None, stack: AsyncExitStack) -> None:
    """Open the store if that is possible now; else requests pass without memory. Raises ConfigError."""
    stack.push_async_callback(stores.close)
    try:
        await open_store(stores, embedder)
    except UnfitStore as error:
        raise ConfigError(str(error)) from error
    except StoreUnavailable as error:
        log_unavailable(stores, error)


async def open_store(stores: "SqlStores", embedder: OnnxEmbedder | None) -> None:
    """Open the store. Raises StoreUnavailable, and ConfigError if its vectors are another model's."""
    try:
        await stores.open()
        if embedder is not None:
            await stores.memories.stamp_model(embedder.model)
    except WrongModel as error:
        await stores.close()  # its vectors mean nothing to our model: no memory is better than a wrong one
        raise ConfigError(str(error)) from error


def log_unavailable(stores: "SqlStores", error: StoreUnavailable) -> None:
    telemetry.log.error("store.unavailable", place=stores.place, error=str(error), memory="off")


# ---------------------------------------------------------------- upstream and our own LLM calls
def _upstream(settings: Settings, url: str, network: Network) -> Upstream:
    chosen = settings.upstream
    timeouts = Timeouts(
        chosen.connect_timeout_seconds, chosen.response_timeout_seconds, chosen.read_timeout_seconds
    )
    return Upstream(
        url,
        timeouts=timeouts,
        limits=ConnectionLimits(connections=chosen.max_connections),
        network=network,
        api_key=chosen.api_key.get_secret_value() if chosen.api_key else None,
    )


def _external_models(
    settings: Settings, network: Network
) -> tuple[dict[str, RoleModel], dict[str, Upstream]]:
    """Return the models of external_models by role, and their upstreams by endpoint."""
    rows = settings.external_models
    roles: dict[str, RoleModel] = {
        row.model_role: RoleModel(
            endpoint=row.llm_endpoint,
            model=row.llm_model_name,
            api_key=row.llm_api_key.get_secret_value() if row.llm_api_key else None,
            timeout_s=row.llm_timeout_seconds,
            max_tokens=row.max_tokens,
            temperature=row.temperature,
        )
        for row in rows
    }
    return roles, {row.llm_endpoint: Upstream(row.llm_endpoint, network=network) for row in rows}


# ---------------------------------------------------------------- the read path
def _recall_tools(base: _Foundation, tokens: Tokens) -> RecallTools:
    """Return the tools of the read path, without the models of `with_query_models`."""
    settings, stores, embedder, judge = base.settings, base.stores, base.models.embedder, base.models.judge
    chosen, deadline_s = settings.retrieval, settings.memory.deadline_ms / 1000
    dense_weight = embedder.model.dense_weight if embedder else 0.0  # no cosines
    ranking = Ranking(
        dense=chosen.dense,
        lexical=chosen.lexical,
        fusion=chosen.fusion,
        dense_weight=dense_weight if chosen.dense_weight is None else chosen.dense_weight,
        recency_depth=chosen.recency_depth,
        half_life_days=chosen.half_life_days,
    )
    searcher = Searcher(
        stores.memories,
        embedder,
        base.clock,
        judge,
        ranking,
        least_cosine=settings.memory.default_similarity_threshold,
        shares_space=judge is not None and judge.shares_space,
    )
    return RecallTools(
        searcher=searcher,
        sessions=stores.sessions,
        timeline=stores.timeline,
        entities=stores.entities,
        follows_links=settings.evolution.enabled and settings.evolution.links,
        notes=stores.notes,
        budget=Budget(tokens, settings.memory.budget_tokens, settings.memory.profile_tokens),
        clock=base.clock,
        patience_s=PROFILE_SHARE * deadline_s,
        # Documents are embedded as they are, without the prefix that memories get.
        shelf=Shelf(stores.passages, stores.memories, embedder, deadline_s=DOCUMENTS_SHARE * deadline_s),
        stage=base.metrics.stage,
        forgets=settings.memory.conversational_forget,
        searches_faded=settings.evolution.enabled,
        restraint=Restraint(chosen.skip_first_turn, chosen.min_query_chars),
    )


async def with_query_models(
    tools: RecallTools, settings: Settings, completer: Completer, safety: SafetyPolicy, stack: AsyncExitStack
) -> RecallTools:
    """Return the tools with the models of external_models that rewrite and plan queries, and the reranker of
    retrieval.rerank; `stack` closes it."""
    deadline_s = settings.memory.deadline_ms / 1000
    redacted = partial(redact, policy=safety)
    roles = {model.model_role for model in settings.external_models}
    rewriter = planner = reranking = None
    if rewrite.REWRITE_ROLE in roles:
        hyde = settings.retrieval.hyde
        rewriter = QueryRewriter(completer, deadline_s=deadline_s, hyde=hyde, redact=redacted)
    if rewrite.PLAN_ROLE in roles:
        planner = SearchPlanner(completer, deadline_s=deadline_s, redact=redacted)
    if rewriter or planner:
        await load_httpx()  # a request's deadline is too short for the import
    loaded = await asyncio.to_thread(
        load_reranker,
        settings.data_dir / "models",
        settings.retrieval.rerank,
        allow_download=settings.embedding.allow_download,
    )
    if loaded.note:
        telemetry.log.error("rerank.unavailable", note=loaded.note)
    if loaded.reranker is not None:
        stack.callback(loaded.reranker.close)
        reranking = Reranking(loaded.reranker, deadline_s=deadline_s)
    searcher = replace(tools.searcher, reranking=reranking)
    return replace(tools, searcher=searcher, rewriter=rewriter, planner=planner)


async def _warm_up(tools: RecallTools, recorder: ExchangeRecorder, fail_open: FailOpen) -> None:
    """Go once through everything that is loaded on first use (libraries, models, tables, patterns): some 0.2
    s that no request's deadline has."""
    asked = local_time(WARM_UP_TURN.at, DEFAULT_TIMEZONE)
    for look in (safe_id, recorder.redact, partial(past_period, asked=asked)):
        await asyncio.to_thread(look, WARM_UP_TURN.said)
    unhurried = replace(tools, shelf=replace(tools.shelf, deadline_s=WARM_UP_S))
    await fail_open.attempt("warm_up", lambda: prepare(WARM_UP_TURN, unhurried), WARM_UP_S)


# ---------------------------------------------------------------- the write path
def _learner(base: _Foundation, completer: Completer, calls: CallQuota) -> Learner:
    """`calls` counts this hour's LLM calls."""
    settings, stores, judge, memory = base.settings, base.stores, base.models.judge, base.settings.memory
    embedder = base.models.embedder.in_background() if base.models.embedder else None
    privacy = settings.privacy
    safety = SafetyPolicy(pii={name: getattr(privacy, name) for name in PII}, quarantine=privacy.quarantine)
    gate = Gate(stores.memories, embedder, memory.min_confidence, safety, memory.ttl_days, judge)
    bounds = CallBounds(
        concurrency=memory.extraction_concurrency,
        peak=memory.extraction_peak,
        calls_per_hour=memory.extraction_calls_per_hour,  # of all processes that share the stores
    )
    load = Load(bounds, base.clock, calls)
    # The rewrite of a query is not metered: a request waits for it.
    metered = MeteredCompleter(completer, load, partial(_count_call, base.metrics, load))
    notes = NoteWriter(
        stores.notes,
        metered,
        mark,
        policy=safety,
        step_turns=memory.compress_step_turns,
        summaries=memory.session_summaries and memory.extraction == "llm",
        idle_seconds=memory.idle_seconds,
        judge=judge,
    )
    policy = TriggerPolicy(memory.extraction_batch_size, memory.idle_seconds, memory.personal_idle_seconds)
    turns = TurnPriority()
    worker = Worker(
        WorkerTools(
            stores.jobs,
            stores.sessions,
            gate,
            metered,
            closing=notes.closing,
            state=notes.refresh,
            drift=TopicDrift(stores.sessions, embedder) if embedder else None,
            load=load,
            turns=turns,
            shared=settings.server.workers > 1 or settings.storage.backend != "sqlite",
        ),
        WorkerConfig(memory.extraction, policy, _pace(settings)),
        clock=base.clock,
        report=partial(_count_job, base.metrics),
    )
    stores.on_queued(worker.wake.set)
    recorder = ExchangeRecorder(
        sessions=stores.sessions,
        trigger=policy.on_completion,
        wake=worker.wake,
        redact=partial(redact, policy=safety),
        judge=judge,
        notes=stores.notes,
        default_timezone=memory.timezone,
        gist=readable if memory.conversational_forget else None,
    )
    documents = DocumentIngester(stores.documents, stores.passages, embedder, base.clock, safety)
    access_counts = AccessCounts(stores.memories, base.clock)
    evolution = Evolution(
        stores.evolution,
        _steps(base, gate, metered, turns),
        EvolutionPolicy(**settings.evolution.model_dump()),
        base.clock,
        turns,
        report=partial(_count_step, base.metrics),
    )
    return Learner(safety, gate, notes, worker, recorder, access_counts, documents, evolution, turns)


def _steps(base: _Foundation, gate: Gate, completer: Completer, turns: TurnPriority) -> tuple[Step, ...]:
    """Return the steps of the background pass, in their order."""
    stores, roles = base.stores, {row.model_role for row in base.settings.external_models}
    judge = base.models.judge
    use = UseJudge(judge, ProfileSorter(judge) if judge else None, turns.pause)
    writer = completer if consolidation.ROLE in roles else None
    steps: list[Step] = [
        UseStep(stores.evolution, use),
        DecayStep(stores.evolution),
        Contradictions(gate, stores.derivation, writer),
        consolidation.Consolidation(gate, stores.derivation, writer),
    ]
    if reflection.ROLE in roles:
        steps.append(reflection.Reflection(gate, stores.derivation, stores.sessions, completer))
    return tuple(steps)


def _pace(settings: Settings) -> WorkerPace:
    memory = settings.memory
    timeouts_s = [memory.llm_timeout_seconds, *(m.llm_timeout_seconds for m in settings.external_models)]
    return WorkerPace(
        lease_seconds=max(180, 2 * max(timeouts_s) + 60),
        batch_limit=memory.extraction_batch_size + 5,
        sweep_seconds=min(5.0, max(0.2, memory.personal_idle_seconds / 3)),
    )


def _count_call(metrics: telemetry.Metrics, load: Load, call: CallOutcome) -> None:
    metrics.model_calls.labels(call.role, call.ended).observe(call.seconds)
    if (left := load.calls_left()) is not None:
        metrics.calls_left.set(left)


def _count_step(metrics: telemetry.Metrics, report: StepReport) -> None:
    metrics.evolution_seconds.labels(report.step, report.outcome).observe(report.seconds)
    for action, count in report.counts.items():
        metrics.evolved.labels(report.step, action).inc(count)


def _count_usage(metrics: telemetry.Metrics, role: str, read: int, written: int) -> None:
    metrics.model_call_tokens.labels(role, "read").inc(read)
    metrics.model_call_tokens.labels(role, "written").inc(written)


def _count_job(metrics: telemetry.Metrics, report: JobReport) -> None:
    metrics.job_outcomes.labels(str(report.lane), report.outcome).inc()
    if report.since_said_s is not None:
        metrics.said_to_stored.labels(str(report.lane)).observe(report.since_said_s)
    for change in ("created", "superseded", "confirmed", "held"):
        metrics.stored.labels(change).inc(getattr(report, change))
