"""No secret, no personal number and no planted instruction reaches the disk, the log or the model."""

import asyncio
import json
import logging
from functools import partial
from pathlib import Path

import pytest

from proxy.admit import safety
from proxy.admit.safety import DEFAULT_PII, SafetyPolicy
from proxy.domain.ports import CompletionRequest
from proxy.domain.session import Outcome
from proxy.learn.recorder import MAX_CHARS, ExchangeRecorder
from tests.admit.corpus import PERSONAL, PLANTED, SECRETS
from tests.learn.support import House, turn

STRICT = SafetyPolicy(pii={**DEFAULT_PII, "email": "redact"})
FEW = 6  # lines of an exchange: a model's answer is read up to a number of facts
EMAIL = "bo.li@mail.example.org"


def every_sentence(request: CompletionRequest) -> str:
    """Answer as a model would that takes every line of the conversation for a fact."""
    said = request.user.partition("<conversation>")[2].partition("</conversation>")[0]
    facts = [
        {"type": "semantic", "content": line[:700], "confidence": 0.9, "evidence": line[:700]}
        for line in said.splitlines()
        if len(line) > 3 and not line.startswith(("<user", "<assistant", "<exchange", "</"))
    ]
    return json.dumps({"facts": facts})


def recorder(house: House) -> ExchangeRecorder:
    return ExchangeRecorder(
        sessions=house.stores.sessions,
        trigger=house.policy.on_completion,
        wake=asyncio.Event(),
        redact=partial(safety.redact, policy=STRICT),
    )


async def record(house: House, said: str, answer: str = "Noted.", session: str = "s-1") -> None:
    """Record an exchange as the proxy does and work off its job with the greedy model."""
    house.count += 1
    house.completer.answers = [every_sentence]
    begun = await recorder(house).begin(turn(said, session), f"k{house.count}")
    await recorder(house).finish(begun, Outcome(answer, True))
    while await house.worker().work_one():
        pass


def on_disk(house: House) -> bytes:
    """Return every byte below the data directory, write-ahead log and free pages included."""
    return b"".join(path.read_bytes() for path in Path(house.stores.path).parent.rglob("*") if path.is_file())


def sent(house: House) -> str:
    return "\n".join(f"{r.system}\n{r.user}" for r in house.completer.requests)


def forms(value: str) -> list[bytes]:
    return [value.encode(), json.dumps(value)[1:-1].encode()]


@pytest.mark.parametrize("side", ["user", "assistant"])
async def test_no_secret_or_identifying_number_is_found_on_disk_or_in_the_prompt(house, caplog, capsys, side):
    caplog.set_level(logging.DEBUG)
    rows = (SECRETS + PERSONAL)[::3]  # all are tried on the detectors themselves
    for at in range(0, len(rows), FEW):
        text = "I live in Ghent.\n\n" + "\n\n".join(t for t, _ in rows[at : at + FEW])
        await (record(house, text) if side == "user" else record(house, "I like tea. What is new?", text))
    disk, prompts, logs = on_disk(house), sent(house), caplog.text + capsys.readouterr().out
    assert b"Ghent" in disk or b"tea" in disk, "the search must be able to find something"
    assert "Ghent" in prompts or "tea" in prompts
    values = [value for _, value in rows if len(value) > 4]
    assert [v for v in values if any(form in disk for form in forms(v))] == []
    assert [v for v in values if v in prompts] == []
    assert [v for v in values if v in logs] == []


async def test_personal_data_to_redact_leaves_its_marker_and_the_rest_is_remembered(house):
    await record(house, f"My sister Mira answers at {EMAIL} every evening.")
    assert EMAIL.encode() not in on_disk(house)
    assert EMAIL not in sent(house)
    assert any("Mira answers at [redacted e-mail] every evening" in c for c in await house.contents())


async def test_no_planted_instruction_reaches_the_model_or_becomes_a_memory(house):
    for at in range(0, len(PLANTED), FEW):
        page = "\n\n".join(PLANTED[at : at + FEW])
        await record(house, f"I live in Ghent. What does this say?\n```\n{page}\n```", "It's a page.")
    assert [p for p in PLANTED if p in sent(house)] == []
    assert [c for c in await house.contents() if "Ghent" not in c and "page" not in c] == []


async def test_a_secret_across_the_place_where_a_long_text_is_cut_is_gone(house):
    card = "4111 1111 1111 1111"
    for shift in (-12, -4):
        before = "tea " * ((MAX_CHARS // 2 + shift) // 4)
        await record(house, f"{before}{card}{' tea' * MAX_CHARS}")
        after = " tea" * ((MAX_CHARS // 2 + shift) // 4)
        await record(house, f"{'tea ' * MAX_CHARS}{card}{after}")
    stored = on_disk(house)
    assert (b" 1111" in stored, b"4111 " in stored) == (False, False)


async def test_a_session_id_that_is_a_key_is_not_written_down(house):
    key = "gh" + "p_FAKEa1B2c3D4e5F6g7H8i9J0k1L2m3N4"
    await record(house, "I live in Ghent.", session=key)
    assert key.encode() not in on_disk(house)
    assert any("Ghent" in c for c in await house.contents())
