"""Wiring: the only place that names concrete stores, models and clients, and owns their lifetimes."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from proxy import observe
from proxy.background import cues, filters
from proxy.background.admit import Gate
from proxy.background.record import ExchangeRecorder
from proxy.background.remember import remember_with
from proxy.background.schedule import Policy, on_completion
from proxy.background.worker import Pace, Report, Worker
from proxy.background.worker import Tools as WorkerTools
from proxy.domain import Level, Ranked, Scope
from proxy.edge.chains import RecentChains
from proxy.edge.failopen import FailOpen
from proxy.edge.identity import open_caller
from proxy.edge.intercept import Intercept, Interception
from proxy.edge.memory_api import MemoryApi
from proxy.edge.operations import Operations, Vitals
from proxy.edge.passage import Relayed
from proxy.edge.reply import ASGIScope, Receive, Send
from proxy.edge.responses.auto import Hearing, Speech
from proxy.edge.responses.background import Lives
from proxy.edge.responses.conversations_api import ConversationsApi
from proxy.edge.responses.door import Door
from proxy.edge.responses.keeping import Keeping
from proxy.edge.responses.probing import Probing
from proxy.edge.responses.responses_api import ResponsesApi
from proxy.edge.responses.translated import Translated, Translating
from proxy.edge.routes import App as ASGIApp
from proxy.edge.routes import Routes
from proxy.edge.turns import Defaults
from proxy.errors import ConfigError, StoreUnavailable, WrongModel
from proxy.pipeline.prepare import Tools, prepare, search
from proxy.settings import Settings
from proxy.stores.models.embedder import OnnxEmbedder
from proxy.stores.models.load import load_embedder
from proxy.stores.models.tokens import Tokens
from proxy.stores.sqlite.stores import SqliteStores
from proxy.upstream.client import Upstream
from proxy.upstream.completer import RoleModel, UpstreamCompleter
from proxy.upstream.credentials import Credentials
from proxy.upstream.opened import Limits, Timeouts
from proxy.upstream.relay import passthrough
from proxy.wire.chat import CHAT
from proxy.wire.dialect import Dialect
from proxy.wire.responses import RESPONSES

STORE_RETRY_S = 2.0
SWEEP_EVERY_S = 600.0
UPKEEP_S = 60.0
WARM_UP_S = 1.0  # what is not ready by then gets ready while serving


@dataclass(frozen=True, slots=True)
class App:
    """One process's proxy, running."""

    routes: Routes
    embedder: str  # where the embedding model came from, "" for lexical search only

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, upstream_url: str) -> AsyncIterator["App"]:
        """Run the proxy while the block runs. Raises ConfigError for what only an operator can mend."""
        async with AsyncExitStack() as stack:
            parts = await Parts.open(settings, upstream_url, stack)
            async with asyncio.TaskGroup() as tasks:
                owned = [tasks.create_task(parts.keep_up()), tasks.create_task(parts.worker.run())]
                try:
                    yield cls(parts.routes(), parts.embedder_source)
                finally:
                    for task in owned:
                        task.cancel()
                    await asyncio.wait(owned)
                    await parts.worker.drain(settings.server.shutdown_seconds)


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that one process is made of."""

    settings: Settings
    stores: SqliteStores
    embedder: OnnxEmbedder | None
    embedder_source: str
    upstream: Upstream
    credentials: Credentials
    worker: Worker
    gate: Gate
    tools: Tools
    recorder: ExchangeRecorder
    metrics: observe.Metrics
    fail_open: FailOpen

    @classmethod
    async def open(cls, settings: Settings, upstream_url: str, stack: AsyncExitStack) -> "Parts":
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
        stores = SqliteStores(settings.data_dir, index_bytes=settings.storage.index_cache_mb * 2**20)
        stack.push_async_callback(stores.close)
        await _open_store(stores, loaded.embedder)
        upstream = _upstream(settings, upstream_url)
        stack.push_async_callback(upstream.aclose)
        credentials = Credentials()
        completer = await _completer(settings, upstream, credentials, stack)
        metrics, memory = observe.Metrics(), settings.memory
        policy = Policy(memory.extraction_batch_size, memory.idle_seconds, memory.personal_idle_seconds)
        gate = Gate(stores.memories, loaded.embedder, memory.min_confidence)
        worker = Worker(
            WorkerTools(stores.jobs, stores.sessions, gate, completer),
            mode=memory.extraction,
            policy=policy,
            pace=Pace(
                concurrency=memory.extraction_concurrency,
                batch_limit=memory.extraction_batch_size + 5,
                sweep_seconds=min(5.0, max(0.2, memory.personal_idle_seconds / 3)),
            ),
            report=lambda report: _count(metrics, report),
        )
        recorder = ExchangeRecorder(
            sessions=stores.sessions,
            trigger=on_completion(policy),
            wake=worker.wake,
            redact=filters.redact,
            is_explicit=cues.is_explicit,
            is_personal=cues.is_personal,
        )
        tokens = Tokens()
        await _warm_up(tokens, loaded.embedder)
        tools = Tools(
            memories=stores.memories,
            sessions=stores.sessions,
            embedder=loaded.embedder,
            tokens=tokens,
            clock=time.time,
            budget_tokens=memory.budget_tokens,
        )
        return cls(
            settings=settings,
            stores=stores,
            embedder=loaded.embedder,
            embedder_source=loaded.source if loaded.embedder else "",
            upstream=upstream,
            credentials=credentials,
            worker=worker,
            gate=gate,
            tools=tools,
            recorder=recorder,
            metrics=metrics,
            fail_open=FailOpen(time.time, metrics),
        )

    # ------------------------------------------------------------ HTTP
    def routes(self) -> Routes:
        """Return the ASGI application."""
        interception, chains = self._interception(), RecentChains()
        speech = Speech(self.settings.upstream.responses)
        hearing, keeping, lives = Hearing(speech), self._keeping(), Lives()
        translating = Translating(
            self.upstream, keeping, lives, placement=self.settings.memory.placement, clock=time.time
        )

        def relayed(dialect: Dialect) -> Relayed:
            placement = self.settings.memory.placement
            return Relayed(self.upstream, dialect, placement, self.stores.sessions, chains, self.fail_open)

        def door(ours: ASGIApp) -> Door:
            most = self.settings.server.max_body_bytes
            return Door(speech, hearing, ours, self._passthrough, self.upstream, most, time.time)

        return Routes(
            chat=Intercept(interception, CHAT, chains, lambda: relayed(CHAT)),
            responses=Intercept(
                interception,
                RESPONSES,
                chains,
                lambda: Probing(relayed(RESPONSES), Translated(translating), hearing, time.time),
            ),
            kept_responses=door(ResponsesApi(keeping, lives, open_caller, time.time).app()),
            conversations=door(
                ConversationsApi(keeping, open_caller, self.settings.server.max_body_bytes).app()
            ),
            memory_api=MemoryApi(
                memories=self.stores.memories,
                recall=self._search,
                remember=remember_with(self.gate, time.time),
                identify=lambda request: open_caller(request.scope["headers"]),
                clock=time.time,
            ).app(),
            operations=Operations(self._vitals, self.stores.jobs.counts, self.metrics),
            passthrough=self._passthrough,
            metrics=self.metrics,
        )

    def _interception(self) -> Interception:
        memory, identity = self.settings.memory, self.settings.identity
        return Interception(
            recall=lambda turn: prepare(turn, self.tools),
            recorder=self.recorder,
            memories=self.stores.memories,
            keep_credential=self.credentials.remember,
            identify=open_caller,
            fail_open=self.fail_open,
            defaults=Defaults(
                enabled=memory.enabled,
                auto_store=memory.auto_store and memory.extraction != "off",
                retrieval_limit=memory.default_retrieval_limit,
                similarity_threshold=memory.default_similarity_threshold,
                accept_openai_user=identity.accept_openai_user,
            ),
            deadline_s=memory.deadline_ms / 1000,
            max_body_bytes=self.settings.server.max_body_bytes,
            clock=time.time,
            metrics=self.metrics,
        )

    def _keeping(self) -> Keeping:
        return Keeping(
            responses=self.stores.chains,
            conversations=self.stores.conversations,
            memories=self.stores.memories,
            fail_open=self.fail_open,
            clock=time.time,
            ttl_s=self.settings.storage.response_ttl_days * 86_400,
        )

    async def _passthrough(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        await passthrough(scope, receive, send, self.upstream)

    async def _search(
        self, scope: Scope, query: str, *, types: tuple[str, ...] | None, limit: int, threshold: float | None
    ) -> Sequence[Ranked]:
        return await search(scope, query, self.tools, types=types, limit=limit, threshold=threshold)

    # ------------------------------------------------------------ health
    def _vitals(self) -> Vitals:
        if not self.stores.is_open:
            return Vitals(Level.NONE, "store_unavailable")
        if resting := self.fail_open.resting:
            return Vitals(Level.NONE, resting)
        if self.embedder is None:
            return Vitals(Level.LEXICAL, "no_embedding_model")
        return Vitals(Level.FULL, "")

    async def keep_up(self) -> None:
        """Do every few seconds what is due, whatever became of it the last time."""
        swept_at = float("-inf")
        while True:
            await asyncio.sleep(STORE_RETRY_S)
            await self.fail_open.attempt("upkeep", self._catch_up, UPKEEP_S)
            if time.monotonic() - swept_at >= SWEEP_EVERY_S:
                swept_at = time.monotonic()
                await self.fail_open.attempt("retention", self._delete_what_is_old, UPKEEP_S)

    async def _catch_up(self) -> None:
        """Open a store that could not be opened at the start, and commit what could not be committed."""
        if not self.stores.is_open:
            await _open_store(self.stores, self.embedder)
        with suppress(StoreUnavailable):
            await self.recorder.catch_up()

    async def _delete_what_is_old(self) -> None:
        now = time.time()
        await self.stores.chains.expire(now)
        await self.stores.sessions.prune(now - self.settings.storage.exchange_ttl_days * 86_400)


async def _open_store(stores: SqliteStores, embedder: OnnxEmbedder | None) -> None:
    """Open the store if it can be opened now; without it, requests pass without memory."""
    try:
        await stores.open()
        if embedder is not None:
            await stores.memories.stamp_model(embedder.model)
    except StoreUnavailable as error:
        observe.log.error("store.unavailable", path=str(stores.path), error=str(error), memory="off")
    except WrongModel as error:
        await stores.close()  # its vectors mean nothing to our model: no memory is better than a wrong one
        raise ConfigError(str(error)) from error


async def _warm_up(tokens: Tokens, embedder: OnnxEmbedder | None) -> None:
    """Do once before the first request what is slow the first time."""
    table = asyncio.wrap_future(tokens.start())
    if embedder is not None:
        await embedder.embed(["warm up"])
    with suppress(TimeoutError):
        await asyncio.wait_for(table, WARM_UP_S)


def _count(metrics: observe.Metrics, report: Report) -> None:
    for change in ("created", "superseded", "confirmed"):
        metrics.stored.labels(change).inc(getattr(report, change))


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
