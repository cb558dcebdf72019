"""The models that look at a question are made where the operator asked for them, and only there."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from proxy.admit.safety import SafetyPolicy
from proxy.app.parts import with_query_models
from proxy.config import load
from proxy.recall.prepare import RecallTools
from tests.recall.conftest import Shelf
from tests.recall.conftest import tools_with as tools_over


class Nobody:
    """A completer that is never asked."""

    async def complete(self, request: Any) -> str:
        raise AssertionError(request.role)


async def tools_with(tmp_path: Path, **sections: Any) -> RecallTools:
    settings = load(None, {}, {"storage": {"data_dir": tmp_path}, **sections})
    async with AsyncExitStack() as stack:
        return await with_query_models(tools_over(Shelf(), None), settings, Nobody(), SafetyPolicy(), stack)


def row(role: str) -> dict[str, str]:
    return {"model_role": role, "llm_endpoint": "http://127.0.0.1:9/v1", "llm_model_name": "small"}


async def test_by_default_there_are_none(tmp_path: Path) -> None:
    made = await tools_with(tmp_path)
    assert (made.rewriter, made.planner, made.searcher.reranking) == (None, None, None)
    assert not made.waits


@pytest.mark.parametrize(("role", "name"), [("memory_rewrite", "rewriter"), ("memory_plan", "planner")])
async def test_a_role_makes_the_model_that_it_names(tmp_path: Path, role: str, name: str) -> None:
    made = await tools_with(tmp_path, external_models=[row(role)])
    assert [n for n in ("rewriter", "planner") if getattr(made, n) is not None] == [name]
    assert made.waits


async def test_a_reranker_that_cannot_be_loaded_is_told_of_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = await tools_with(tmp_path, retrieval={"rerank": str(tmp_path / "absent")})
    assert made.searcher.reranking is None
    said = capsys.readouterr()
    assert "rerank.unavailable" in said.out + said.err  # whoever ran before may have configured the log
