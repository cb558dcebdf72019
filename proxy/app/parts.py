"""Everything that one process is made of, made from the settings."""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial

from proxy import observe
from proxy.app.library import library_of, shelf_of
from proxy.app.query_models import with_query_models
from proxy.background import cues, filters
from proxy.background.admit import Gate
from proxy.background.anchors import anchors_of
from proxy.background.budget import Bounds, Call, Load, Metered
from proxy.background.closing import Keeper
from proxy.background.drift import Drift
from proxy.background.library import Library
from proxy.background.policy import PII, SafetyPolicy
from proxy.background.record import ExchangeRecorder
from proxy.background.schedule import Policy, on_completion
from proxy.background.worker import Pace, Report, Worker
from proxy.background.worker import Tools as WorkerTools
from proxy.domain import Level, MemoryOptions, Message, Scope, Turn
from proxy.edge.failopen import FailOpen
from proxy.edge.ledger import Ledger
from proxy.errors import ConfigError, StoreUnavailable, WrongModel
from proxy.open_stores import stores_of
from proxy.pipeline.compress import mark
from proxy.pipeline.prepare import Tools, prepare
from proxy.pipeline.rank import Ranking
from proxy.ports import Clock
from proxy.settings import MemorySettings, Privacy, Retrieval, Settings
from proxy.storage import Stores
from proxy.stores.models.embedder import OnnxEmbedder
from proxy.stores.models.load import load_embedder
from proxy.stores.models.tokens import Tokens
from proxy.upstream.client import Upstream
from proxy.upstream.completer import RoleModel, UpstreamCompleter
from proxy.upstream.credentials import Credentials
from proxy.upstream.opened import Limits, Timeouts

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
class Parts:
    """Everything that one process is made of."""

    settings: Settings
    clock: Clock
    stores: Stores
    embedder: OnnxEmbedder | None
    embedder_source: str
    upstream: Upstream
    credentials: Credentials
    worker: Worker
    keeper: Keeper
    gate: Gate
    tools: Tools
    recorder: ExchangeRecorder
    metrics: observe.Metrics
    fail_open: FailOpen
    ledger: Ledger | None  # None: no rate limit is set
    library: Library | None  # None: the store keeps no documents

    @classmethod
    async def open(
        cls, settings: Settings, upstream_url: str, stack: AsyncExitStack, clock: Clock
    ) -> "Parts":
        """Make the parts; `stack` closes them, the last made first."""
        loaded = await asyncio.to_thread(
            load_embedder,
            settings.data_dir / "models",
            model=settings.embedding.model,
            path=settings.embedding.path,
            allow_download=settings.embedding.allow_download,
        )
        if loaded.embedder is not None:
            stack.callback(loaded.embedder.close)
            _check_dimension(loaded.embedder, settings)
        else:
            observe.log.error("embedding.unavailable", notes=loaded.notes, level=Level.LEXICAL.value)
        stores = stores_of(settings)
        stack.push_async_callback(stores.close)
        await open_store(stores, loaded.embedder)
        upstream = _upstream(settings, upstream_url)
        stack.push_async_callback(upstream.aclose)
        credentials = Credentials()
        completer = await _completer(settings, upstream, credentials, stack)
        metrics, memory = observe.Metrics(), settings.memory
        safety = _safety(settings.privacy)
        # Own calls of the background are metered; the rewrite of a query is not: a request waits for it.
        load = Load(_bounds(memory, settings.server.workers), clock)
        if memory.extraction_calls_per_hour:
            metrics.calls_left.set_function(lambda: float(load.calls_left() or 0))
        metered = Metered(completer, load, lambda call: _called(metrics, call))
        quiet = loaded.embedder.in_background() if loaded.embedder else None
        gate = Gate(stores.memories, quiet, memory.min_confidence, policy=safety, ttl_days=memory.ttl_days)
        policy = Policy(memory.extraction_batch_size, memory.idle_seconds, memory.personal_idle_seconds)
        keeper = Keeper(
            stores.notes,
            metered,
            mark,
            policy=safety,
            step_turns=memory.compress_step_turns,
            summaries=memory.session_summaries and memory.extraction == "llm",
            idle_seconds=memory.idle_seconds,
        )
        worker = Worker(
            WorkerTools(
                stores.jobs,
                stores.sessions,
                gate,
                metered,
                closing=keeper.closing,
                state=keeper.refresh,
                shared=settings.server.workers > 1 or settings.storage.backend != "sqlite",
            ),
            mode=memory.extraction,
            policy=policy,
            pace=_pace(memory),
            load=load,
            drift=Drift(stores.sessions, quiet) if quiet else None,
            clock=clock,
            report=lambda report: _count(metrics, report),
        )
        recorder = ExchangeRecorder(
            sessions=stores.sessions,
            trigger=on_completion(policy),
            wake=worker.wake,
            redact=partial(filters.redact, policy=safety),
            is_explicit=cues.is_explicit,
            is_personal=cues.is_personal,
        )
        tokens = Tokens()
        tools = Tools(
            memories=stores.memories,
            sessions=stores.sessions,
            notes=stores.notes,
            embedder=loaded.embedder,
            tokens=tokens,
            clock=clock,
            budget_tokens=memory.budget_tokens,
            ranking=_ranking(settings.retrieval),
            shelf=shelf_of(stores, loaded.embedder, memory.deadline_ms),
            stage=metrics.stage,
        )
        fail_open = FailOpen(clock, metrics)
        await _warm_up(tokens, tools, recorder, fail_open)  # before there is a model to ask: nobody does
        return cls(
            settings=settings,
            clock=clock,
            stores=stores,
            embedder=loaded.embedder,
            embedder_source=loaded.source if loaded.embedder else "",
            upstream=upstream,
            credentials=credentials,
            worker=worker,
            keeper=keeper,
            gate=gate,
            tools=await with_query_models(tools, settings, completer, safety, stack),
            recorder=recorder,
            metrics=metrics,
            fail_open=fail_open,
            ledger=_ledger(settings, stack),
            library=library_of(stores, quiet, safety, clock),
        )


async def open_store(stores: Stores, embedder: OnnxEmbedder | None) -> None:
    """Open the store if it can be opened now; without it, requests pass without memory."""
    try:
        await stores.open()
        if embedder is not None:
            await stores.memories.stamp_model(embedder.model)
    except StoreUnavailable as error:
        observe.log.error("store.unavailable", place=stores.place, error=str(error), memory="off")
    except WrongModel as error:
        await stores.close()  # its vectors mean nothing to our model: no memory is better than a wrong one
        raise ConfigError(str(error)) from error


async def _warm_up(tokens: Tokens, tools: Tools, recorder: ExchangeRecorder, fail_open: FailOpen) -> None:
    """Do once before the first request what is slow the first time: libraries, models, tables and word lists
    are loaded when they are first used, some 0.2 s that no request's deadline has."""
    table = asyncio.wrap_future(tokens.start())
    await asyncio.to_thread(_look_at, _NOBODYS.said, recorder)
    await fail_open.attempt("warm_up", lambda: prepare(_NOBODYS, tools), WARM_UP_S)
    with suppress(TimeoutError):
        await asyncio.wait_for(table, WARM_UP_S)


def _look_at(said: str, recorder: ExchangeRecorder) -> None:
    """Do what is done with everything that is said before it is written down."""
    for look in (filters.safe_id, recorder.redact, recorder.is_explicit, recorder.is_personal, anchors_of):
        look(said)


def _called(metrics: observe.Metrics, call: Call) -> None:
    metrics.model_calls.labels(call.role, call.ended).observe(call.seconds)


def _count(metrics: observe.Metrics, report: Report) -> None:
    metrics.job_outcomes.labels(str(report.lane), report.outcome).inc()
    if report.since_said_s is not None:
        metrics.said_to_stored.labels(str(report.lane)).observe(report.since_said_s)
    for change in ("created", "superseded", "confirmed", "held"):
        metrics.stored.labels(change).inc(getattr(report, change))


def _ledger(settings: Settings, stack: AsyncExitStack) -> Ledger | None:
    """Return where the rate limits of all processes are kept, if there are any."""
    if not (settings.limits.requests_per_minute or settings.limits.memory_requests_per_minute):
        return None
    ledger = Ledger(settings.data_dir / "run" / "limits")
    stack.callback(ledger.close)
    return ledger


def _safety(privacy: Privacy) -> SafetyPolicy:
    return SafetyPolicy(
        pii={name: getattr(privacy, name) for name in PII},
        quarantine=privacy.quarantine,
        tool_output=privacy.extract_tool_output,
    )


def _ranking(chosen: Retrieval) -> Ranking:
    return Ranking(
        dense=chosen.dense,
        lexical=chosen.lexical,
        fusion=chosen.fusion,
        dense_weight=chosen.dense_weight,
        recency_depth=chosen.recency_depth,
        half_life_days=chosen.half_life_days,
    )


def _bounds(memory: MemorySettings, workers: int) -> Bounds:
    hourly = memory.extraction_calls_per_hour
    return Bounds(
        concurrency=memory.extraction_concurrency,
        peak=memory.extraction_peak,
        calls_per_hour=-(-hourly // workers),  # each process counts its own
    )


def _pace(memory: MemorySettings) -> Pace:
    return Pace(
        batch_limit=memory.extraction_batch_size + 5,
        sweep_seconds=min(5.0, max(0.2, memory.personal_idle_seconds / 3)),
    )


def _check_dimension(embedder: OnnxEmbedder, settings: Settings) -> None:
    found, configured = embedder.model.dimension, settings.embedding.dimension
    if found != configured:
        raise ConfigError(
            f"the model {embedder.model.name} makes vectors of {found} dimensions, and embedding.dimension "
            f"is {configured}: set embedding.dimension to {found}"
        )


def _upstream(settings: Settings, url: str) -> Upstream:
    chosen = settings.upstream
    return Upstream(
        url,
        timeouts=Timeouts(
            connect_s=chosen.connect_timeout_seconds,
            headers_s=chosen.response_timeout_seconds,
            read_s=chosen.read_timeout_seconds,
        ),
        limits=Limits(connections=chosen.max_connections),
        api_key=chosen.api_key.get_secret_value() if chosen.api_key else None,
    )


async def _completer(
    settings: Settings, upstream: Upstream, credentials: Credentials, stack: AsyncExitStack
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
            endpoints[model.llm_endpoint] = await stack.enter_async_context(Upstream(model.llm_endpoint))
    return UpstreamCompleter(upstream, credentials, roles, endpoints)
