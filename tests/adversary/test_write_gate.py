"""The write gate under attack: unknown shapes of secrets, every entry point, and innocent sentences."""

import json
import logging
from typing import Any

from tests.adversary.conftest import files_with
from tests.e2e.conftest import House, Json, context
from tests.support.model import ScriptedModel
from tests.support.upstream import Exchange, completion_events


# ---------------------------------------------------------------- every route
def secret(number: int) -> str:
    """Return an invented key of a vendor."""
    return "gh" + f"p_{number:02d}Zq8Wn3Lt6Rv1Yx5Kb9Md2Hf7Jc4Sg{number:02d}"


def every_line(said: str) -> list[dict[str, Any]]:
    """Return every line as a fact, as the sloppiest model would."""
    lines = [line for line in said.splitlines() if len(line) > 3 and not line.startswith("<")]
    return [{"type": "semantic", "content": line, "confidence": 0.95, "evidence": line} for line in lines[:9]]


def chats() -> list[Json]:
    """Return chat bodies with a secret, each in another place."""

    def user(content: Any, **more: Any) -> Json:
        return {"messages": [{"role": "user", "content": content}], **context(), **more}

    def after(*before: Json) -> Json:
        return user("") | {"messages": [*before, {"role": "user", "content": "I ski."}]}

    arguments = json.dumps({"k": secret(4)})
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    file = {"type": "file", "file": {"filename": f"{secret(12)}.txt"}}
    return [
        user(f"I moved to Ghent, my key is {secret(0)}"),
        user([{"type": "text", "text": "I moved to Ghent."}, {"type": "text", "text": secret(1)}]),
        after({"role": "system", "content": secret(2)}),
        after({"role": "developer", "content": secret(3)}),
        after(
            {"role": "user", "content": "I ski. Look it up."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": secret(5)},
        ),
        user("I row.", user=secret(6), metadata={"k": secret(7)}),
        user("I paint.", model=secret(8)),
        user("I knit.", **context("alice", session_id=secret(9), project_id=secret(13))),
        user(f"I sing. gh{chr(0x200B)}{secret(10)[2:]}"),
        user(f"{'tea ' * 6_000}{secret(11)}{' tea' * 6_000}"),
        user([{"type": "text", "text": "I bake."}, file]),
    ]


async def remember(h: House) -> list[str]:
    """Send secrets to every route of the memory API; return the answers."""
    alice = {"user_id": "alice"}
    history = [{"at": 1.0, "action": "created", "by": secret(26), "content": f"Key: {secret(27)}"}]
    evidence = [{"session_id": "s", "exchange_id": "e", "span": f"Key: {secret(28)}"}]
    lines = [
        {"content": f"Key: {secret(24)}", **alice},
        {"content": "I like figs.", "tags": [secret(25)], **alice},
        {"content": "I like plums.", "history": history, "evidence": evidence, **alice},
    ]
    body, ndjson = "\n".join(map(json.dumps, lines)), {"content-type": "application/x-ndjson"}
    async with h.http() as http:
        made = await http.post("/memory", json={"content": "I like tea.", **alice})
        memory = f"/memory/{made.json()['id']}"
        answers = [
            await http.post("/memory", json={"content": f"My key is {secret(20)}", **alice}),
            await http.post("/memory", json={"content": "I like rice.", "tags": [secret(21)], **alice}),
            await http.patch(memory, json={"content": f"Key: {secret(22)}"}),
            await http.patch(memory, json={"tags": [secret(23)]}),
            await http.post("/memory/import", content=body, headers=ndjson),
            await http.post("/memory/search", json={"query": secret(29), **alice}),
            await http.get("/memory", params={"q": secret(30), **alice}),
        ]
    return [answer.text for answer in answers]


async def test_no_secret_is_stored_logged_or_shown_by_any_route(house, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    model = ScriptedModel(answer=f"Noted:{secret(40)} ", facts=every_line)
    async with house(model) as h, h.http() as http:
        for body in chats():
            assert (await h.complete(body)).status_code == 200
            assert (await h.complete(body | {"stream": True})).status_code == 200
        answers = await remember(h)
        await h.quiet()
        seen = [(await http.get(f"{h.origin}{path}")).text for path in ("/metrics", "/health")]
        seen += [(await http.get(f"/memory/{path}?user_id=alice")).text for path in ("export", "jobs")]
        prompts = "\n".join(r.body.decode() for r in model.extractions)
        out, err = capfd.readouterr()
        numbers = [n for n in range(41) if n != 8]  # 8 is a model's name, which extraction calls too
        assert [n for n in numbers if files_with(tmp_path / "data", secret(n))] == []
        assert [n for n in numbers if secret(n) in prompts] == []
        logged = [r.getMessage() for r in caplog.records if not r.name.startswith("http")]  # the client's own
        assert [n for n in numbers if secret(n) in "\n".join((*logged, out, err, *seen, *answers))] == []
        assert "Ghent" in prompts, "the search must be able to find something"


class Torn(ScriptedModel):
    """Streams its answer in pieces of three characters."""

    async def converse(self, exchange: Exchange) -> None:
        pieces = [self.answer[at : at + 3] for at in range(0, len(self.answer), 3)]
        await exchange.stream(*completion_events(*pieces))


async def test_a_secret_in_pieces_of_a_stream_is_not_stored(house, tmp_path):
    model = Torn("Your password is Redshank-marsh-12 as you said, and you live in Ghent.", facts=every_line)
    async with house(model) as h:
        body = {"messages": [{"role": "user", "content": "I live in Ghent."}], "stream": True}
        await h.complete(body | context())
        await h.quiet()
        assert files_with(tmp_path / "data", "Redshank") == []
        assert files_with(tmp_path / "data", "Ghent") != []
