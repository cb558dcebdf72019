"""An export of what was said thousands of times is one that an import takes."""

from typing import Any

import pytest

from proxy.http.memory_api import transfer
from tests.http.memory_api.conftest import Bench
from tests.http.memory_api.test_moving import ndjson, read

LINE = {"content": "User likes figs.", "user_id": "alice"}
SAID = [{"session_id": "s", "exchange_id": f"ex_{n}", "span": "I like figs. " * 7} for n in range(9)]


async def exported(bench: Bench, most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the line of the memory where a line may have so many bytes; an import takes it."""
    monkeypatch.setattr(transfer, "MAX_LINE_BYTES", most_bytes)
    body = await bench.export(user_id="alice")
    assert len(body) - 1 <= most_bytes
    assert (await bench.bring_in(body, user_id=f"bob-{most_bytes}"))["imported"] == 1
    return read(body)[0]


async def test_the_first_confirmations_are_left_out_and_then_the_first_words(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.bring_in(ndjson({**LINE, "evidence": SAID}))
    for _ in range(30):
        await bench.add(LINE["content"])
    whole = await exported(bench, 1_000_000, monkeypatch)
    created, imported, *confirmed = whole["history"]
    assert (len(confirmed), whole["evidence"]) == (30, SAID)

    some = await exported(bench, 3_000, monkeypatch)
    left = len(some["history"]) - 2
    assert 0 < left < 30
    assert some == {**whole, "history": [created, imported, *confirmed[-left:]]}

    few = await exported(bench, 1_500, monkeypatch)
    assert few["history"] == [created, imported]
    assert few["evidence"] == SAID[-len(few["evidence"]) :] != SAID
