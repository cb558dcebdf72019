"""Builds, from the settings, everything that one process is made of."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from proxy import telemetry
from proxy.admit import safety
from proxy.admit.gate import Gate
from proxy.admit.safety import PII, SafetyPolicy, redact
from proxy.admit.safety import redact as redacted
from proxy.app.factories import cache_of, network_of, stores_of
from proxy.config import MemorySettings, PrivacySettings, RetrievalSettings, Settings
from proxy.domain.core import Level, MemoryOptions, Message, Scope, Turn
from proxy.domain.errors import ConfigError, StoreError, StoreUnavailable, UnfitStore, WrongModel
from proxy.domain.judging import Judge
from proxy.domain.limits import CallQuota
from proxy.domain.operating_system import trim_heap
from proxy.domain.ports import Clock, Completer, Embedder, Stores
from proxy.http.failopen import FailOpen
from proxy.http.limits import Ledger
from proxy.http.turns import Zones
from proxy.learn.budget import CallBounds, CallOutcome, Load, MeteredCompleter, TurnPriority
from proxy.learn.documents import DocumentIngester
from proxy.learn.recorder import AccessCounts, ExchangeRecorder
from proxy.learn.session_notes import NoteWriter
from proxy.learn.triggers import TopicDrift, TriggerPolicy, on_completion
from proxy.learn.worker import JobReport, Worker, WorkerConfig, WorkerPace, WorkerTools
from proxy.models.embedder import OnnxEmbedder
from proxy.models.judge import OnnxJudge, load_judge
from proxy.models.load import LoadedEmbedder, load_embedder
from proxy.models.reranker import load_reranker
from proxy.models.tokens import Tokens
from proxy.recall import rewrite
from proxy.recall.documents import Shelf
from proxy.recall.history import mark
from proxy.recall.pack import Budget
from proxy.recall.prepare import RecallTools, prepare
from proxy.recall.query import readable
from proxy.recall.rank import Ranking, Reranking
from proxy.recall.rewrite import QueryRewriter, SearchPlanner
from proxy.recall.search import Searcher
from proxy.recall.triage import Restraint
from proxy.upstream.client import Upstream
from proxy.upstream.completer import Credentials, RoleModel, UpstreamCompleter
from proxy.upstream.connection import ConnectionLimits, Timeouts
from proxy.upstream.forms import Forms, Learning
from proxy.upstream.network import Network

if TYPE_CHECKING:
    from proxy.storage.redis_cache import RedisCache


PATIENCE = 0.7  # share of memory's deadline that a message which needs no memory waits for the store
WARM_UP_S = 1.0  # what is not ready by then gets ready while serving
_NOBODYS = Turn(  # nobody's memories are looked through, all of the read path is gone through
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


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that one process is made of."""

    settings: Settings
    clock: Clock
    stores: Stores
    embedder: OnnxEmbedder | None
    embedder_source: str
    upstream: Upstream
    credentials: Credentials
    learning: Learning
    written: WritePath
    judge: OnnxJudge | None  # None: the level "without judge"
    tools: RecallTools
    metrics: telemetry.Metrics
    fail_open: FailOpen
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
    ) -> "Parts":
        """Make the parts; `stack` closes them, the last made first. Raises ConfigError; if they `must_embed`,
        for want of an embedding model, too: before anything is done by these settings."""
        loaded = await _loaded(settings, stack, must_embed=must_embed)
        metrics = telemetry.Metrics()
        stores = await _opened(settings, loaded.embedder, stack, metrics)
        network = network_of(settings)
        # The scripted model is this process's own: no proxy leads to it.
        way = network if settings.upstream.base_url else Network()
        upstream = _upstream(settings, upstream_url, way)
        stack.push_async_callback(upstream.aclose)
        credentials = Credentials()
        learning = Learning(Forms(clock), upstream_url, settings.memory.placement)
        with suppress(StoreError):  # then it is learnt again, or read once the store is there
            await learning.forms.sync(stores.forms)
        completer = await _completer(settings, upstream, credentials, stack, network, learning)
        judge = await _judge(settings, loaded.embedder, stack)
        cache = cache_of(settings, metrics.cache_outages.inc)
        if cache is not None:
            stack.push_async_callback(cache.close)
        calls = cache.calls(stores.calls) if cache is not None else None
        written = write_path(settings, stores, loaded.embedder, completer, metrics, clock, judge, calls)
        tokens, fail_open = Tokens(), FailOpen(time.monotonic, metrics)
        tools = _tools(settings, stores, loaded.embedder, tokens, metrics, clock, judge)
        # Before the query models are there: warming up must not ask one.
        await _warm_up(tokens, tools, written.recorder, fail_open)
        return cls(
            settings=settings,
            clock=clock,
            stores=stores,
            embedder=loaded.embedder,
            embedder_source=loaded.source if loaded.embedder else "",
            upstream=upstream,
            credentials=credentials,
            learning=learning,
            written=written,
            judge=judge,
            tools=await with_query_models(tools, settings, completer, written.safety, stack),
            metrics=metrics,
            fail_open=fail_open,
            zones=Zones(stores.sessions, settings.memory.timezone, clock),
            ledger=_ledger(settings, stack),
            cache=cache,
        )


async def _loaded(settings: Settings, stack: AsyncExitStack, *, must_embed: bool) -> LoadedEmbedder:
    """Return the embedding model, as far as there is one. Raises ConfigError for one that does not fit, and
    if they `must_embed` where there is none."""
    loaded = await asyncio.to_thread(
        load_embedder,
        settings.data_dir / "models",
        model=settings.embedding.model,
        path=settings.embedding.path,
        allow_download=settings.embedding.allow_download,
        threshold=settings.memory.default_similarity_threshold,
    )
    if loaded.embedder is not None:
        stack.callback(loaded.embedder.close)
        _check_dimension(loaded.embedder, settings)
        if settings.embedding.path is not None and loaded.source != "directory":
            telemetry.log.warning("embedding.path_unusable", taken=loaded.source, notes=loaded.notes)
    elif must_embed:
        why = "; ".join(loaded.notes)
        raise ConfigError(f"the embedding model cannot be loaded: search would be by words only ({why})")
    else:
        telemetry.log.error("embedding.unavailable", notes=loaded.notes, level=Level.LEXICAL.value)
    return loaded


async def _judge(
    settings: Settings, embedder: OnnxEmbedder | None, stack: AsyncExitStack
) -> OnnxJudge | None:
    """Return the trained heads, None where they cannot be used."""
    loaded = await asyncio.to_thread(load_judge, settings.data_dir / "models", embedder)
    if loaded.judge is None:
        telemetry.log.error("judge.unavailable", note=loaded.note, level=Level.UNJUDGED.value)
        return None
    stack.callback(loaded.judge.close)
    return loaded.judge


async def _opened(
    settings: Settings, embedder: OnnxEmbedder | None, stack: AsyncExitStack, metrics: telemetry.Metrics
) -> Stores:
    """Return the stores, open if they can be opened now. Raises ConfigError."""
    stores = stores_of(settings, metrics.index_fallbacks.inc)
    stack.push_async_callback(stores.close)
    try:
        await open_store(stores, embedder)
    except UnfitStore as error:
        raise ConfigError(str(error)) from error
    except StoreUnavailable as error:  # without it, requests pass without memory
        say_unavailable(stores, error)
    return stores


def _tools(
    settings: Settings,
    stores: Stores,
    embedder: OnnxEmbedder | None,
    tokens: Tokens,
    metrics: telemetry.Metrics,
    clock: Clock,
    judge: OnnxJudge | None,
) -> RecallTools:
    """Return what the read path works with, without the models that word and plan queries."""
    searcher = Searcher(
        stores.memories,
        embedder,
        clock,
        judge,
        _ranking(settings.retrieval, embedder),
        least_cosine=settings.memory.default_similarity_threshold,
        shares_space=judge is not None and judge.shares_space,
    )
    return RecallTools(
        searcher=searcher,
        sessions=stores.sessions,
        notes=stores.notes,
        budget=Budget(tokens, settings.memory.budget_tokens, settings.memory.profile_tokens),
        clock=clock,
        patience_s=PATIENCE * settings.memory.deadline_ms / 1000,
        shelf=shelf_of(stores, embedder, settings.memory.deadline_ms),
        stage=metrics.stage,
        forgets=settings.memory.conversational_forget,
        restraint=Restraint(settings.retrieval.skip_first_turn, settings.retrieval.min_query_chars),
    )


async def open_store(stores: Stores, embedder: OnnxEmbedder | None) -> None:
    """Open the store. Raises StoreUnavailable, and ConfigError where its vectors are another model's."""
    try:
        await stores.open()
        if embedder is not None:
            await stores.memories.stamp_model(embedder.model)
    except WrongModel as error:
        await stores.close()  # its vectors mean nothing to our model: no memory is better than a wrong one
        raise ConfigError(str(error)) from error


def say_unavailable(stores: Stores, error: StoreUnavailable) -> None:
    """Log that the store cannot be opened, or reached."""
    telemetry.log.error("store.unavailable", place=stores.place, error=str(error), memory="off")


async def _warm_up(
    tokens: Tokens, tools: RecallTools, recorder: ExchangeRecorder, fail_open: FailOpen
) -> None:
    """Do once before the first request what is slow the first time: libraries, models, tables and word lists
    are loaded when they are first used, some 0.2 s that no request's deadline has."""
    table = asyncio.wrap_future(tokens.start())
    await asyncio.to_thread(_look_at, _NOBODYS.said, recorder)
    unhurried = replace(tools, shelf=replace(tools.shelf, deadline_s=WARM_UP_S))
    await fail_open.attempt("warm_up", lambda: prepare(_NOBODYS, unhurried), WARM_UP_S)
    with suppress(TimeoutError):
        await asyncio.wait_for(table, WARM_UP_S)
    trim_heap()


def _look_at(said: str, recorder: ExchangeRecorder) -> None:
    """Do what is done with everything that is said before it is written down."""
    for look in (safety.safe_id, recorder.redact):
        look(said)


def _ledger(settings: Settings, stack: AsyncExitStack) -> Ledger | None:
    """Return where the rate limits of all processes are kept, if there are any."""
    if not (settings.limits.requests_per_minute or settings.limits.memory_requests_per_minute):
        return None
    ledger = Ledger(settings.data_dir / "run" / "limits")
    stack.callback(ledger.close)
    return ledger


def _ranking(chosen: RetrievalSettings, embedder: OnnxEmbedder | None) -> Ranking:
    own = embedder.model.dense_weight if embedder else 0.0  # no cosines
    return Ranking(
        dense=chosen.dense,
        lexical=chosen.lexical,
        fusion=chosen.fusion,
        dense_weight=own if chosen.dense_weight is None else chosen.dense_weight,
        recency_depth=chosen.recency_depth,
        half_life_days=chosen.half_life_days,
    )


def _check_dimension(embedder: OnnxEmbedder, settings: Settings) -> None:
    found, configured = embedder.model.dimension, settings.embedding.dimension
    if found != configured:
        raise ConfigError(
            f"the model {embedder.model.name} makes vectors of {found} dimensions, and embedding.dimension "
            f"is {configured}: set embedding.dimension to {found}"
        )


def _upstream(settings: Settings, url: str, network: Network) -> Upstream:
    chosen = settings.upstream
    return Upstream(
        url,
        timeouts=Timeouts(
            connect_s=chosen.connect_timeout_seconds,
            headers_s=chosen.response_timeout_seconds,
            read_s=chosen.read_timeout_seconds,
        ),
        limits=ConnectionLimits(connections=chosen.max_connections),
        network=network,
        api_key=chosen.api_key.get_secret_value() if chosen.api_key else None,
    )


async def _completer(
    settings: Settings,
    upstream: Upstream,
    credentials: Credentials,
    stack: AsyncExitStack,
    network: Network,
    learning: Learning,
) -> UpstreamCompleter:
    roles: dict[str, RoleModel] = {}
    endpoints: dict[str, Upstream] = {}
    for model in settings.external_models:
        roles[model.model_role] = RoleModel(
            endpoint=model.llm_endpoint,
            model=model.llm_model_name,
            api_key=model.llm_api_key.get_secret_value() if model.llm_api_key else None,
            timeout_s=model.llm_timeout_seconds,
            max_tokens=model.max_tokens,
            temperature=model.temperature,
        )
        if model.llm_endpoint not in endpoints:
            endpoints[model.llm_endpoint] = await stack.enter_async_context(
                Upstream(model.llm_endpoint, network=network)
            )
    own = RoleModel(timeout_s=settings.memory.llm_timeout_seconds)
    return UpstreamCompleter(upstream, credentials, roles, endpoints, learning=learning, own=own)


async def with_query_models(
    tools: RecallTools, settings: Settings, completer: Completer, safety: SafetyPolicy, stack: AsyncExitStack
) -> RecallTools:
    """Return the tools with the models of external_models that word and plan queries, and the reranker of
    retrieval.rerank; `stack` closes it."""
    deadline_s = settings.memory.deadline_ms / 1000
    redact = partial(redacted, policy=safety)
    roles = {model.model_role for model in settings.external_models}
    worded = planned = None
    if rewrite.REWRITE_ROLE in roles:
        worded = QueryRewriter(completer, deadline_s=deadline_s, hyde=settings.retrieval.hyde, redact=redact)
    if rewrite.PLAN_ROLE in roles:
        planned = SearchPlanner(completer, deadline_s=deadline_s, redact=redact)
    reranking = await _reranking(settings, deadline_s, stack)
    searcher = replace(tools.searcher, reranking=reranking)
    return replace(tools, searcher=searcher, rewriter=worded, planner=planned)


async def _reranking(settings: Settings, deadline_s: float, stack: AsyncExitStack) -> Reranking | None:
    loaded = await asyncio.to_thread(
        load_reranker,
        settings.data_dir / "models",
        settings.retrieval.rerank,
        allow_download=settings.embedding.allow_download,
    )
    if loaded.note:
        telemetry.log.error("rerank.unavailable", note=loaded.note)
    if loaded.reranker is None:
        return None
    stack.callback(loaded.reranker.close)
    return Reranking(loaded.reranker, deadline_s=deadline_s)


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


def _safety(privacy: PrivacySettings) -> SafetyPolicy:
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


SHARE_OF_DEADLINE = 0.5  # of memory's: what a search of documents may take beside that of memories


def library_of(
    stores: Stores, embedder: Embedder | None, policy: SafetyPolicy, clock: Clock
) -> DocumentIngester:
    """Return what takes documents in."""
    return DocumentIngester(stores.documents, stores.passages, embedder, clock, policy)


def shelf_of(stores: Stores, embedder: Embedder | None, deadline_ms: float) -> Shelf:
    """Return what the read path looks documents up with. `embedder`: reads questions as it reads documents;
    what an encoder for questions learnt is how memories are told."""
    deadline_s = SHARE_OF_DEADLINE * deadline_ms / 1000
    return Shelf(stores.passages, stores.memories, embedder, deadline_s=deadline_s)
