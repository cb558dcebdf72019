"""Builds the HTTP application of one process: the routes, wired to the services that serve them."""

import shutil
from collections.abc import Callable, Sequence
from functools import partial

from proxy import __version__
from proxy.admit.gate import LANGUAGES
from proxy.admit.safety import safe_id
from proxy.app.factories import auth_of
from proxy.app.services import Services
from proxy.domain.core import Level, Turn
from proxy.domain.limits import Rate
from proxy.http.asgi import ASGIApp
from proxy.http.auth.identity import caller_of
from proxy.http.forwarding import Forwarding, Relayed
from proxy.http.intercept import Intercept, Recaller, ToolLoops, WritePath
from proxy.http.limits import RateLimiter, RateLimitMiddleware
from proxy.http.memory_api.app import McpEndpoint, MemoryApi
from proxy.http.memory_api.inspection import (
    CallerEndpoints,
    QuarantineEndpoints,
    ReceiptEndpoints,
    SessionEndpoints,
    TimelineEndpoints,
)
from proxy.http.memory_api.memories import DerivedEndpoints, EvolutionEndpoints, MemoryEndpoints
from proxy.http.memory_api.openapi import OpenApi
from proxy.http.memory_api.recall import DocumentEndpoints, RecallEndpoints
from proxy.http.memory_api.response_schemas import MemoryShaper
from proxy.http.memory_api.transfer import TransferEndpoints
from proxy.http.memory_work import RecallLimiter, RecentResponses
from proxy.http.operations import Operations, Ui, Vitals
from proxy.http.responses.endpoints import CompactApi, ConversationsApi, ResponsesApi, stored_app
from proxy.http.responses.ownership import NativeOwnership, SealKey
from proxy.http.responses.response_store import BackgroundRegistry, ResponseStore
from proxy.http.responses.router import AutoForwarding, EndpointProbe, ResponsesMode, ResponsesRouter
from proxy.http.responses.translated import TranslatedForwarding, TranslationPorts
from proxy.http.router import Application, Apps, Decoded
from proxy.http.turns import CompressionRules, Defaults, RequestParser
from proxy.learn.contradictions import Contradictions
from proxy.learn.edits import MemoryEditor
from proxy.recall.prepare import forget_memories, memories_to_forget, prepare
from proxy.upstream.relay import Passthrough
from proxy.wire.body import BodyLimits
from proxy.wire.dialect import CHAT, RESPONSES, Dialect

ELSEWHERE_S = 0.03  # for a response that another replica is just about to write down


_caller_of = partial(caller_of, project_key=safe_id)


def routes(services: Services) -> Application:
    settings, limited = services.settings, _limiter(services)
    intercept = _interceptor(services)
    responses, stored = _responses_apps(services, intercept)
    memory_api = _memory_api(services)

    def plain(app: ASGIApp, limit: str = "model") -> ASGIApp:
        return limited(Decoded(app, settings.server.max_body_bytes), limit)

    def free_bytes() -> int:
        return shutil.disk_usage(settings.data_dir).free

    apps = Apps(
        chat=plain(intercept(CHAT, lambda relayed: relayed)),
        responses=plain(responses),
        stored_responses=plain(stored),
        conversations=plain(stored),
        memory=plain(memory_api, limit="memory"),
        mcp=plain(McpEndpoint(memory_api, _caller_of), limit="memory"),
        operations=Operations(
            lambda: vitals(services),
            services.stores.jobs.counts,
            services.metrics,
            services.clock,
            free_bytes=free_bytes if settings.storage.backend == "sqlite" else None,
        ),
        passthrough=limited(Passthrough(services.upstream), "model"),
        openapi=OpenApi(__version__, settings.server.public_url or "."),
        ui=Ui.load(),
    )
    not_trusted = services.metrics.not_trusted
    auth = auth_of(settings, services.stores.keys, lambda reason: not_trusted.labels(reason.value).inc())
    return Application(apps, auth, services.metrics)


def vitals(services: Services) -> Vitals:
    """Return the state of memory, for /health and /ready."""
    stores = services.stores
    if not stores.is_open:
        # While a shared store is down, the replicas still take requests, without memory.
        is_shared = services.settings.storage.backend != "sqlite"
        return Vitals(Level.NONE, "store_unavailable", stores.failure, ready=is_shared)
    # Before the circuit breaker: a store that only fails to write can still recall.
    if trouble := stores.trouble:
        return Vitals(Level.FULL if stores.is_readable else Level.NONE, trouble)
    if resting := services.fail_open.resting:
        return Vitals(Level.NONE, resting)
    if services.models.embedder is None:
        return Vitals(Level.LEXICAL, "no_embedding_model")
    if services.models.judge is None:
        return Vitals(Level.UNJUDGED, "no_judge")
    return Vitals(Level.FULL, "", texts=LANGUAGES.texts, unread=LANGUAGES.unread)


Interceptor = Callable[[Dialect, Callable[[Callable[[], Relayed]], Callable[[], Forwarding]]], Intercept]
"""Makes the app of an intercepted route; the second argument returns what makes a request's forwarding, given
what makes its relaying."""


def _interceptor(services: Services) -> Interceptor:
    memory, tools, learner = services.settings.memory, services.tools, services.learner
    recent = RecentResponses()
    recaller = Recaller(
        recall=partial(prepare, tools=tools),
        loops=ToolLoops(services.stores.memories),
        priority=learner.turns,
        fail_open=services.fail_open,
        notes=services.stores.notes,
        zones=services.zones,
        learning=services.learning,
        rules=CompressionRules(
            threshold_tokens=memory.compress_threshold_tokens,
            keep_turns=memory.compress_keep_turns,
            step_turns=memory.compress_step_turns,
        ),
        # A turn that may wait for a model takes no slot: it would delay the others.
        limiter=None if tools.waits else RecallLimiter(),
    )

    async def forgotten(turn: Turn, ids: Sequence[str] | None) -> tuple[str, ...]:
        if not tools.forgets:
            return ()
        if ids is None:
            ids = await memories_to_forget(turn, tools.searcher)
        return await forget_memories(turn, ids, tools.searcher)

    write_path = WritePath(
        learner.recorder, learner.access_counts.note, forgotten, services.credentials.remember
    )
    is_shared = services.settings.storage.backend != "sqlite"

    def intercept(
        dialect: Dialect, forwarding: Callable[[Callable[[], Relayed]], Callable[[], Forwarding]]
    ) -> Intercept:
        relayed = partial(
            Relayed,
            services.upstream,
            dialect,
            services.stores.sessions,
            recent,
            services.fail_open,
            ELSEWHERE_S if is_shared else 0.0,
        )
        parser = _parser(services, dialect)
        return Intercept(parser, recaller, write_path, recent, services.metrics, forwarding(relayed))

    return intercept


def _responses_apps(services: Services, intercept: Interceptor) -> tuple[ASGIApp, ASGIApp]:
    """Return what serves `POST /v1/responses`, and the routes of stored responses and conversations."""
    settings, clock = services.settings, services.clock
    mode = ResponsesMode(settings.upstream.responses)
    store = ResponseStore(
        responses=services.stores.chains,
        conversations=services.stores.conversations,
        memories=services.stores.memories,
        fail_open=services.fail_open,
        clock=clock,
        ttl_s=settings.storage.response_ttl_days * 86_400,
        conversation_ttl_s=settings.storage.conversation_ttl_days * 86_400,
        most_bytes=int(settings.limits.max_responses_mb_per_user * 1e6),
    )
    background = BackgroundRegistry()
    probe = EndpointProbe(mode)
    ownership = NativeOwnership(services.stores.chains, services.fail_open, clock, store.ttl_s)
    ports = TranslationPorts(
        services.upstream,
        store,
        background,
        clock=clock,
        start_s=settings.upstream.stream_start_seconds,
        silence_s=settings.upstream.keep_alive_seconds,
        max_answer_bytes=settings.upstream.max_answer_mb << 20,
        seal_key=SealKey(services.stores.conversations, services.fail_open, clock),
        learning=services.learning,
    )

    def forwarding(relayed: Callable[[], Relayed]) -> Callable[[], Forwarding]:
        return lambda: AutoForwarding(
            relayed(), TranslatedForwarding(ports), probe, clock, services.learning, ownership
        )

    max_body_bytes = settings.server.max_body_bytes
    stored = ResponsesRouter(
        mode,
        probe,
        services.upstream,
        ownership,
        stored=stored_app(
            ResponsesApi(store, background, _caller_of, clock, ports.silence_s),
            ConversationsApi(store, _caller_of, max_body_bytes),
        ),
        compact=CompactApi(ports, services.tools.budget.tokens, max_body_bytes),
        passthrough=Passthrough(services.upstream),
        max_body_bytes=max_body_bytes,
        clock=clock,
    )
    return intercept(RESPONSES, forwarding), stored


def _limiter(services: Services) -> Callable[[ASGIApp, str], ASGIApp]:
    """Return what puts an app behind the limit named `model` or `memory`, if it is set."""
    chosen, ledger = services.settings.limits, services.ledger
    if ledger is None:
        return lambda app, name: app
    rates = {
        "model": Rate.of(chosen.requests_per_minute, chosen.requests_burst),
        "memory": Rate.of(chosen.memory_requests_per_minute, chosen.memory_requests_burst),
    }
    limiter = RateLimiter(ledger, services.clock, services.cache)

    def limited(app: ASGIApp, name: str) -> ASGIApp:
        rate = rates[name]
        return app if rate is None else RateLimitMiddleware(app, rate, name, limiter, caller_of)

    return limited


def _memory_api(services: Services) -> MemoryApi:
    stores, clock, memory = services.stores, services.clock, services.settings.memory
    edits = MemoryEditor(services.learner.gate, stores.quarantine, clock, services.learner.turns.give_way)
    evolution, zones = services.learner.evolution, services.zones
    shape = MemoryShaper(evolution.policy_of, clock)
    contradictions = Contradictions(services.learner.gate, stores.derivation)
    return MemoryApi(
        lambda request: _caller_of(request.scope),
        MemoryEndpoints(stores.memories, edits, zones, clock, services.credentials.forget, shape),
        RecallEndpoints(
            services.tools, zones, clock, shape, memory.default_retrieval_limit, memory.enabled, safe_id
        ),
        TransferEndpoints(stores.memories, edits, zones, clock),
        TimelineEndpoints(stores.timeline, stores.entities, zones, clock, shape),
        SessionEndpoints(stores.sessions, stores.jobs, services.learner.worker.wake.set, clock, safe_id),
        QuarantineEndpoints(stores.quarantine, edits, shape),
        ReceiptEndpoints(stores.receipts),
        DocumentEndpoints(services.learner.documents, clock),
        DerivedEndpoints(stores.memories, stores.derivation, contradictions, clock, shape),
        EvolutionEndpoints(edits, evolution, clock, shape),
        CallerEndpoints(services.settings.identity.mode, __version__),
    )


def _parser(services: Services, dialect: Dialect) -> RequestParser:
    memory, chosen = services.settings.memory, services.settings.limits
    return RequestParser(
        dialect=dialect,
        defaults=Defaults(
            enabled=memory.enabled,
            auto_store=memory.auto_store,
            may_store=memory.extraction != "off",
            retrieval_limit=memory.default_retrieval_limit,
            accept_openai_user=services.settings.identity.accept_openai_user,
            compress=memory.compress,
        ),
        bounds=BodyLimits(chosen.max_messages, chosen.max_json_values, int(chosen.max_text_mb * 1e6)),
        max_body_bytes=services.settings.server.max_body_bytes,
        deadline_s=memory.deadline_ms / 1000,
        clock=services.clock,
        identify=_caller_of,
        session_key=safe_id,
    )
