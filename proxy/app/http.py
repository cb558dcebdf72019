"""Builds the HTTP application of one process: the routes, wired to the parts that serve them."""

import shutil
from collections.abc import Callable, Sequence
from functools import partial

from proxy import __version__
from proxy.admit.safety import safe_id
from proxy.app.factories import auth_of
from proxy.app.maintenance import vitals
from proxy.app.parts import Parts
from proxy.domain.core import Prepared, Turn
from proxy.domain.limits import Rate
from proxy.http.asgi import ASGIApp, Decoded
from proxy.http.auth.identity import caller_of
from proxy.http.exchange import RecentResponses
from proxy.http.failopen import RecallLimiter
from proxy.http.forwarding import Forwarding, Relayed
from proxy.http.intercept import Intercept, Recaller, WritePath
from proxy.http.limits import RateLimiter, RateLimitMiddleware
from proxy.http.memory_api.app import MemoryApi
from proxy.http.memory_api.documents import DocumentEndpoints
from proxy.http.memory_api.inspection import (
    CallerEndpoints,
    QuarantineEndpoints,
    ReceiptEndpoints,
    SessionEndpoints,
)
from proxy.http.memory_api.memories import MemoryEndpoints
from proxy.http.memory_api.openapi import OpenApi
from proxy.http.memory_api.transfer import TransferEndpoints
from proxy.http.operations import Operations
from proxy.http.responses.background import BackgroundRegistry
from proxy.http.responses.capability_probe import AutoForwarding, EndpointProbe, ResponsesMode
from proxy.http.responses.compact import CompactApi
from proxy.http.responses.endpoints import ConversationsApi, ResponsesApi, stored_app
from proxy.http.responses.native_ownership import NativeOwnership
from proxy.http.responses.owners import SealKey
from proxy.http.responses.response_store import ResponseStore
from proxy.http.responses.router import ResponsesRouter
from proxy.http.responses.translated import TranslatedForwarding, TranslationPorts
from proxy.http.router import Application, Apps
from proxy.http.turns import Defaults, RequestParser
from proxy.http.ui.app import Ui
from proxy.learn.edits import MemoryEditor
from proxy.recall.history import CompressionRules, ToolLoops
from proxy.recall.prepare import forget_memories, memories_to_forget, prepare
from proxy.upstream.relay import Passthrough
from proxy.wire.body import BodyLimits
from proxy.wire.dialect import CHAT, RESPONSES, Dialect

ELSEWHERE_S = 0.03  # for a response that another replica is just about to write down


def routes(parts: Parts) -> Application:
    """Return the ASGI application."""
    recaller, recent = _recaller(parts), RecentResponses()
    write_path = WritePath(
        parts.written.recorder,
        parts.written.touches.note,
        partial(_forgotten, parts),
        parts.credentials.remember,
    )
    speech = ResponsesMode(parts.settings.upstream.responses)
    hearing, keeping, lives = EndpointProbe(speech), _keeping(parts), BackgroundRegistry()
    makers = NativeOwnership(parts.stores.chains, parts.fail_open, parts.clock, keeping.ttl_s)
    translating = TranslationPorts(
        parts.upstream,
        keeping,
        lives,
        clock=parts.clock,
        start_s=parts.settings.upstream.stream_start_seconds,
        silence_s=parts.settings.upstream.keep_alive_seconds,
        max_answer_bytes=parts.settings.upstream.max_answer_mb << 20,
        seal_key=SealKey(parts.stores.conversations, parts.fail_open, parts.clock),
        learning=parts.learning,
    )
    compact = CompactApi(
        translating, parts.tools.budget.tokens, parts.settings.server.max_body_bytes, parts.learning
    )

    def relayed(dialect: Dialect) -> Relayed:
        return Relayed(
            parts.upstream,
            dialect,
            parts.stores.sessions,
            recent,
            parts.fail_open,
            patience_s=ELSEWHERE_S if parts.settings.storage.backend != "sqlite" else 0.0,
        )

    most = parts.settings.server.max_body_bytes
    stored = ResponsesRouter(
        speech,
        hearing,
        parts.upstream,
        makers,
        stored=stored_app(
            ResponsesApi(keeping, lives, _caller_of, parts.clock, translating.silence_s),
            ConversationsApi(keeping, _caller_of, most),
        ),
        compact=compact,
        passthrough=Passthrough(parts.upstream),
        max_body_bytes=most,
        clock=parts.clock,
    )

    def intercept(dialect: Dialect, forwarding: Callable[[], Forwarding]) -> Intercept:
        parser = _parser(parts, dialect)
        return Intercept(parser, recaller, write_path, recent, parts.metrics, forwarding)

    def responses_forwarding() -> Forwarding:
        translated = TranslatedForwarding(translating)
        return AutoForwarding(relayed(RESPONSES), translated, hearing, parts.clock, parts.learning, makers)

    limited = _limiter(parts)

    def plain(app: ASGIApp, limit: str = "model") -> ASGIApp:
        return limited(Decoded(app, parts.settings.server.max_body_bytes), limit)

    apps = Apps(
        chat=plain(intercept(CHAT, lambda: relayed(CHAT))),
        responses=plain(intercept(RESPONSES, responses_forwarding)),
        stored_responses=plain(stored),
        conversations=plain(stored),
        memory=plain(_memory_api(parts), limit="memory"),
        operations=Operations(
            lambda: vitals(parts),
            parts.stores.jobs.counts,
            parts.metrics,
            parts.clock,
            free_bytes=_free_bytes(parts),
        ),
        passthrough=limited(Passthrough(parts.upstream), "model"),
        openapi=OpenApi(__version__, parts.settings.server.public_url or "."),
        ui=Ui.load(),
    )
    auth = auth_of(
        parts.settings,
        parts.stores.keys,
        lambda reason: parts.metrics.not_trusted.labels(reason.value).inc(),
    )
    return Application(apps, auth, parts.metrics)


_caller_of = partial(caller_of, project_key=safe_id)


def _free_bytes(parts: Parts) -> Callable[[], int] | None:
    if parts.settings.storage.backend != "sqlite":
        return None
    return lambda: shutil.disk_usage(parts.settings.data_dir).free


def _limiter(parts: Parts) -> Callable[[ASGIApp, str], ASGIApp]:
    """Return what puts an app behind the limit named `model` or `memory`, if it is set."""
    chosen, ledger = parts.settings.limits, parts.ledger
    if ledger is None:
        return lambda app, name: app
    rates = {
        "model": Rate.of(chosen.requests_per_minute, chosen.requests_burst),
        "memory": Rate.of(chosen.memory_requests_per_minute, chosen.memory_requests_burst),
    }
    limiter = RateLimiter(ledger, parts.clock, parts.cache.limits if parts.cache is not None else None)

    def limited(app: ASGIApp, name: str) -> ASGIApp:
        rate = rates[name]
        return app if rate is None else RateLimitMiddleware(app, rate, name, limiter, caller_of)

    return limited


def _memory_api(parts: Parts) -> MemoryApi:
    stores, clock = parts.stores, parts.clock
    edits = MemoryEditor(parts.written.gate, stores.quarantine, clock, parts.written.turns.give_way)
    return MemoryApi(
        lambda request: _caller_of(request.scope),
        MemoryEndpoints(
            stores.memories,
            edits,
            parts.tools,
            parts.zones,
            clock,
            on_forgotten=parts.credentials.forget,
            retrieval_limit=parts.settings.memory.default_retrieval_limit,
        ),
        TransferEndpoints(stores.memories, edits, parts.zones, clock),
        SessionEndpoints(stores.sessions, stores.jobs, parts.written.worker.wake.set, clock, safe_id),
        QuarantineEndpoints(stores.quarantine, edits),
        ReceiptEndpoints(stores.receipts),
        DocumentEndpoints(parts.written.library, clock),
        CallerEndpoints(parts.settings.identity.mode, __version__),
    )


async def _prepared(parts: Parts, loops: ToolLoops, turn: Turn) -> Prepared:
    with parts.written.turns.turn():
        return await loops.prepared(turn, lambda: prepare(turn, parts.tools))


async def _forgotten(parts: Parts, turn: Turn, ids: Sequence[str] | None) -> tuple[str, ...]:
    tools = parts.tools
    if not tools.forgets:
        return ()
    if ids is None:
        ids = await memories_to_forget(turn, tools.searcher)
    return await forget_memories(turn, ids, tools.searcher)


def _parser(parts: Parts, dialect: Dialect) -> RequestParser:
    memory, chosen = parts.settings.memory, parts.settings.limits
    return RequestParser(
        dialect=dialect,
        defaults=Defaults(
            enabled=memory.enabled,
            auto_store=memory.auto_store,
            may_store=memory.extraction != "off",
            retrieval_limit=memory.default_retrieval_limit,
            accept_openai_user=parts.settings.identity.accept_openai_user,
            compress=memory.compress,
        ),
        bounds=BodyLimits(chosen.max_messages, chosen.max_json_values, int(chosen.max_text_mb * 1e6)),
        max_body_bytes=parts.settings.server.max_body_bytes,
        deadline_s=memory.deadline_ms / 1000,
        clock=parts.clock,
        identify=_caller_of,
        session_key=safe_id,
    )


def _recaller(parts: Parts) -> Recaller:
    memory = parts.settings.memory
    return Recaller(
        recall=partial(_prepared, parts, ToolLoops(parts.stores.memories)),
        fail_open=parts.fail_open,
        notes=parts.stores.notes,
        zones=parts.zones,
        learning=parts.learning,
        rules=CompressionRules(
            threshold_tokens=memory.compress_threshold_tokens,
            keep_turns=memory.compress_keep_turns,
            step_turns=memory.compress_step_turns,
        ),
        # A turn that may wait for a model takes no slot: it would delay the others.
        limiter=None if parts.tools.waits else RecallLimiter(),
    )


def _keeping(parts: Parts) -> ResponseStore:
    return ResponseStore(
        responses=parts.stores.chains,
        conversations=parts.stores.conversations,
        memories=parts.stores.memories,
        fail_open=parts.fail_open,
        clock=parts.clock,
        ttl_s=parts.settings.storage.response_ttl_days * 86_400,
        conversation_ttl_s=parts.settings.storage.conversation_ttl_days * 86_400,
        most_bytes=int(parts.settings.limits.max_responses_mb_per_user * 1e6),
    )
