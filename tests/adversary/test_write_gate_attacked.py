"""The write gate under attack: unseen shapes, every door, and the innocent, who lose nothing."""

import json
import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.admit.safety import redact, reject, without_planted
from proxy.domain.core import Candidate
from tests.adversary.conftest import context, jobs, post, until
from tests.adversary.gate_corpus import INNOCENT, PERSONAL, SECRETS
from tests.adversary.test_forgotten_stays_forgotten import files_with
from tests.e2e.conftest import House, Houses
from tests.support.model import ScriptedModel
from tests.support.upstream import Exchange, completion_events


@pytest.mark.parametrize(("text", "value"), [*SECRETS, *PERSONAL])
def test_an_unseen_shape_is_removed_and_no_memory_is_made_of_it(text: str, value: str) -> None:
    assert value not in redact(text)
    assert redact(redact(text)) == redact(text)
    assert reject(Candidate(type="semantic", content=text)) is not None


@pytest.mark.parametrize("text", INNOCENT)
def test_an_innocent_sentence_is_kept_as_it_is(text: str) -> None:
    assert redact(text) == text
    assert without_planted(text) == text
    assert reject(Candidate(type="semantic", content=text)) is None


# ---------------------------------------------------------------- every door
def secret(door: int) -> str:
    """An invented key of a vendor, different for each door."""
    return "gh" + f"p_{door:02d}Zq8Wn3Lt6Rv1Yx5Kb9Md2Hf7Jc4Sg{door:02d}"


def every_line(said: str) -> list[dict[str, Any]]:
    """Take every line for a fact, as the sloppiest model would."""
    lines = [line for line in said.splitlines() if len(line) > 3 and not line.startswith("<")]
    return [{"type": "semantic", "content": line, "confidence": 0.95, "evidence": line} for line in lines[:9]]


def chats() -> list[dict[str, Any]]:
    """Chat bodies that hold a secret, each in another place."""

    def told(content: Any, **more: Any) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": content}], **context(), **more}

    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": json.dumps({"k": secret(4)})},
    }
    return [
        told(f"I moved to Ghent, my key is {secret(0)}"),
        told([{"type": "text", "text": "I moved to Ghent."}, {"type": "text", "text": secret(1)}]),
        {"messages": [{"role": "system", "content": secret(2)}, {"role": "user", "content": "I ski."}]}
        | context(),
        {"messages": [{"role": "developer", "content": secret(3)}, {"role": "user", "content": "I ski."}]}
        | context(),
        {
            "messages": [
                {"role": "user", "content": "I ski. Look it up."},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": secret(5)},
            ]
        }
        | context(),
        told("I row.", user=secret(6), metadata={"k": secret(7)}),
        told("I paint.", model=secret(8)),
        told("I knit.", **context("alice", session_id=secret(9))),
        told(f"I sing. gh{chr(0x200B)}{secret(10)[2:]}"),
        told(f"{'tea ' * 6_000}{secret(11)}{' tea' * 6_000}"),
        told(
            [{"type": "text", "text": "I bake."}, {"type": "file", "file": {"filename": f"{secret(12)}.txt"}}]
        ),
    ]


async def remember(h: House) -> list[str]:
    """Bring secrets through the doors of the memory API; return what was refused."""
    refused = []
    async with httpx2.AsyncClient(base_url=h.base_url, timeout=20) as http:
        made = await http.post("/memory", json={"user_id": "alice", "content": "I like tea."})
        memory = made.json()["id"]
        bodies: list[dict[str, Any]] = [
            {"content": f"My key is {secret(20)}"},
            {"content": "I like rice.", "tags": [secret(21)]},
        ]
        answers = [await http.post("/memory", json={"user_id": "alice"} | body) for body in bodies]
        answers.append(await http.patch(f"/memory/{memory}", json={"content": f"Key: {secret(22)}"}))
        answers.append(await http.patch(f"/memory/{memory}", json={"tags": [secret(23)]}))
        lines = [
            {"content": f"Key: {secret(24)}", "user_id": "alice"},
            {"content": "I like figs.", "user_id": "alice", "tags": [secret(25)]},
            {
                "content": "I like plums.",
                "user_id": "alice",
                "history": [
                    {"at": 1.0, "action": "created", "by": secret(26), "content": f"Key: {secret(27)}"}
                ],
                "evidence": [{"session_id": "s", "exchange_id": "e", "span": f"Key: {secret(28)}"}],
            },
        ]
        body = "\n".join(map(json.dumps, lines)).encode()
        answers.append(
            await http.post("/memory/import", content=body, headers={"content-type": "application/x-ndjson"})
        )
        answers.append(await http.post("/memory/search", json={"user_id": "alice", "query": secret(29)}))
        answers.append(await http.get("/memory", params={"user_id": "alice", "q": secret(30)}))
        refused += [a.text for a in answers]
    return refused


async def test_a_secret_comes_through_no_door(
    house: Houses, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    model = ScriptedModel(answer=f"Noted:{secret(40)} ", facts=every_line)
    async with house(model) as h:
        for body in chats():
            assert (await post(h, body)).status_code == 200
            assert (await post(h, body | {"stream": True})).status_code == 200
        answers = await remember(h)
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0, within_s=30)
        async with httpx2.AsyncClient(timeout=30) as http:
            seen = [(await http.get(f"{h.origin}{p}")).text for p in ("/metrics", "/health")]
            seen.append((await http.get(f"{h.base_url}/memory/export", params={"user_id": "alice"})).text)
            seen.append((await http.get(f"{h.base_url}/memory/jobs", params={"user_id": "alice"})).text)
        prompts = "\n".join(r.body.decode() for r in model.extractions)
        out, err = capfd.readouterr()
        # 8 is the name of a model: it is the client's choice, and the one that extraction asks for, too.
        doors = [n for n in range(41) if n != 8]
        left = {n: files_with(tmp_path / "data", secret(n)) for n in doors}
        assert {n: files for n, files in left.items() if files} == {}
        assert [n for n in doors if secret(n) in prompts] == []
        logged = [r.getMessage() for r in caplog.records if not r.name.startswith("http")]  # the client's own
        assert [n for n in doors if secret(n) in "\n".join((*logged, out, err, *seen, *answers))] == []
        assert "Ghent" in prompts, "the search must be able to find something"


class Torn(ScriptedModel):
    """Streams its answer in pieces of three characters."""

    async def converse(self, exchange: Exchange) -> None:
        pieces = [self.answer[at : at + 3] for at in range(0, len(self.answer), 3)]
        await exchange.stream(*completion_events(*pieces))


async def test_a_secret_in_pieces_of_a_stream_is_not_written_down(house: Houses, tmp_path: Path) -> None:
    model = Torn("Your password is Redshank-marsh-12 as you said, and you live in Ghent.", facts=every_line)
    async with house(model) as h:
        told = {"messages": [{"role": "user", "content": "I live in Ghent."}], "stream": True}
        await post(h, told | context())
        await until(lambda: jobs(h), lambda c: c["running"] + c["queued"] == 0)
        assert files_with(tmp_path / "data", "Redshank") == []
        assert files_with(tmp_path / "data", "Ghent") != []
