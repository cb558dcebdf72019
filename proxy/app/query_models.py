"""Builds the optional models of the read path (query rewriting, planning, reranking), each only where the
operator asked for it.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from proxy import telemetry
from proxy.admit.safety import SafetyPolicy
from proxy.admit.safety import redact as redacted
from proxy.config import Settings
from proxy.domain.ports import Completer
from proxy.models.reranker import load_reranker
from proxy.recall import rewrite
from proxy.recall.prepare import Tools
from proxy.recall.rank import Reranking
from proxy.recall.rewrite import QueryRewriter, SearchPlanner


async def with_query_models(
    tools: Tools, settings: Settings, completer: Completer, safety: SafetyPolicy, stack: AsyncExitStack
) -> Tools:
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
    return replace(tools, searcher=searcher, wording=worded, planner=planned)


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
