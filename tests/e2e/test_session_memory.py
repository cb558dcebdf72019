"""What a session keeps: standing instructions, its last turns, its state, and a summary once it has ended."""

import json
from typing import Any

import httpx2

from proxy.http import memory_work
from tests.e2e.conftest import House, until
from tests.e2e.test_core_loop import ResponsesModel, context, stored
from tests.support.model import ScriptedModel, known

FORTY = "Hawaii costs about forty dollars a day for food."
SUMMARY = {
    "summary": "The user planned a trip to Hawaii with Priya and settled on a budget of $10,000.",
    "topics": ["Hawaii trip"],
    "actions": ["compared hotels on Maui"],
    "outcomes": ["budget is $10,000"],
    "importance": 0.7,
}


async def ask(h: House, text: str, session: str = "s-1", user: str = "alice", **config: Any) -> Any:
    """One request of a named session that carries nothing of its history; returns the headers."""
    return await send(h, [{"role": "user", "content": text}], session, user, **config)


async def send(h, messages, session="s-1", user="alice", **config):
    body = {"model": "m", "messages": messages, **context(user, session_id=session)}
    async with httpx2.AsyncClient(timeout=30) as http:
        asked = body | ({"memory_config": config} if config else {})
        answer = await http.post(f"{h.base_url}/chat/completions", json=asked)
    answer.raise_for_status()
    return answer.headers


def block(h: House) -> str:
    """What was injected into the last request."""
    return "\n".join(m["content"] for m in h.model.last_messages if m["role"] == "system")


async def test_a_standing_instruction_is_in_force_on_the_next_turn_and_until_it_is_ended(house):
    async with house() as h:
        await ask(h, "Please answer in Chinese from now on. Keep it short.")
        assert block(h) == ""
        headers = await ask(h, "What rhymes with orange?")
        assert "] Please answer in Chinese from now on." in block(h)
        assert "] Keep it short." in block(h)
        assert (headers["x-memory-status"], headers["x-memory-reason"]) == ("injected", "session")
        assert headers["x-memory-count"] == "0"
        assert int(headers["x-memory-tokens"]) > 0
        await ask(h, "hi!")  # nothing is searched for a greeting
        assert "] Please answer in Chinese from now on." in block(h)
        await ask(h, "What rhymes with orange?", "s-2")
        assert block(h) == ""
        await ask(h, "What rhymes with orange?", user="bob")
        assert block(h) == ""
        await ask(h, "You can answer in English again.")
        await ask(h, "What rhymes with silver?")
        assert "[anchor" in block(h)
        assert "Chinese" not in block(h).partition("[turn")[0]


NO_PLACE = {"status": "none", "reason": "no_place", "count": "0", "tokens": "0"}


def memory_headers(headers: Any) -> dict[str, str]:
    return {name: headers[f"x-memory-{name}"] for name in NO_PLACE}


async def test_headers_do_not_claim_notes_that_had_no_place(house):
    async with house() as h:
        await ask(h, "Please answer in Chinese from now on.")
        system = [{"role": "system", "content": "You are terse."}]
        assert memory_headers(await send(h, system)) == NO_PLACE
        assert h.model.last_messages == system
    output: Any = {"type": "function_call_output", "call_id": "c1", "output": "42"}
    async with house(ResponsesModel()) as h, h.client() as client:
        first = await client.responses.create(model="m", input="Hello!", extra_body=context("alice"))
        step = await client.responses.with_raw_response.create(
            model="m",
            input=[output],
            previous_response_id=first.id,
            extra_body=context("alice", session_id="s-1"),
        )
        assert memory_headers(step.headers) == NO_PLACE
        assert h.model.chats[-1].json["input"] == [output]


async def test_memories_visible_in_the_conversation_are_not_repeated(house):
    said = [
        {"role": "user", "content": "No more emojis, please."},
        {"role": "assistant", "content": "All right."},
        {"role": "user", "content": "What rhymes with orange?"},
    ]
    async with house() as h:
        await send(h, said[:1])
        await send(h, said)
        assert block(h) == ""
        await send(h, [*said[1:], said[1], {"role": "user", "content": "And with silver?"}])
        assert "] No more emojis" in block(h)


async def extracted(h: House, said: str) -> bool:
    return any(said in str(request.json) for request in h.model.extractions)


async def test_a_session_without_history_is_reminded_of_its_last_turns(house):
    async with house(ScriptedModel(answer=FORTY)) as h:
        for text in ("How much is food in Hawaii?", "And the flights?", "And the hotels?", "And a car?"):
            await ask(h, text)
        # Its answer is on the disk once it is read for facts; the client has it a little earlier.
        await until(lambda: extracted(h, "And a car?"))
        await ask(h, "So what is the total?")
        turns = [line for line in block(h).splitlines() if line.startswith("[turn ")]
        assert len(turns) == 3
        assert turns[0].endswith(f"] user: And the flights? — assistant: {FORTY}")
        assert "And a car?" in turns[-1]
        await send(h, [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"},
                       {"role": "user", "content": "So what is the total?"}])  # fmt: skip
        assert "[turn " not in block(h)


async def test_the_next_turn_knows_the_last_however_fast_it_comes(house, monkeypatch):
    monkeypatch.setattr(memory_work, "WAIT_S", 4.0)  # a busy disk takes longer than a request would wait
    async with house(ScriptedModel(answer=FORTY)) as h, httpx2.AsyncClient(timeout=30) as http:
        fact = {"user_id": "alice", "content": "User's ferry to Naxos costs 90 euros."}
        assert (await http.post(f"{h.base_url}/memory", json=fact)).status_code == 201
        for number in range(5):
            session = context("alice", session_id=f"quick-{number}")
            for text in (f"Let us talk about the ferry to Naxos, option {number}.", "How much?"):
                body = {"model": "m", "messages": [{"role": "user", "content": text}], **session}
                answer = await http.post(f"{h.base_url}/chat/completions", json=body)
            assert "[turn " in block(h)
            assert answer.headers["x-memory-count"] == "1"


# ---------------------------------------------------------------- summaries
async def end(h: House, session: str = "s-1", user: str = "alice") -> None:
    async with httpx2.AsyncClient(timeout=30) as http:
        answer = await http.post(f"{h.base_url}/memory/sessions/{session}/end", params={"user_id": user})
        assert answer.status_code == 202


async def talk(h: House) -> None:
    await ask(h, "I am planning a trip to Hawaii with Priya in spring.")
    await ask(h, "Please compare hotels on Maui for the two of us.")
    await ask(h, "Our budget is $10,000 in all, flights included.")


async def episodes(h: House) -> list[dict[str, Any]]:
    return [m for m in await stored(h, "alice") if m["type"] == "episodic"]


async def test_a_session_that_ended_is_summed_up_once(house):
    model = ScriptedModel(answer="Here are hotels on Maui.")
    model.roles["memory_summary"] = json.dumps(SUMMARY)
    async with house(model, memory={"extraction_batch_size": 2, "personal_idle_seconds": 0.6}) as h:
        await talk(h)
        await end(h)
        (memory,) = await until(lambda: episodes(h))
        assert memory["content"].startswith(SUMMARY["summary"])
        assert "Outcome: budget is $10,000." in memory["content"]
        assert (memory["importance"], memory["source"]) == (0.7, "summary")
        assert memory["tags"] == ["Hawaii trip"]
        prompt = str(model.asked[0][1].json)
        assert "Our budget is $10,000" in prompt
        await talk(h)  # the same again: the last message is a retry, the others are new
        again = dict(SUMMARY, summary="The user planned a trip to Hawaii with Priya twice, for $10,000.")
        model.roles["memory_summary"] = json.dumps(again)
        await end(h)
        (later,) = await until(lambda: episodes(h), lambda found: found[0]["id"] != memory["id"])
        assert later["content"].startswith(again["summary"])


async def value(of: Any) -> Any:
    return of


# ---------------------------------------------------------------- compression
async def test_a_conversation_of_80_turns_stays_small_and_knows_what_was_said(house):
    model = ScriptedModel(facts=known(("allergic", "User is allergic to peanuts.")))
    model.answer = "Noted, and here is a longer explanation of it. " * 8
    model.roles["memory_state"] = json.dumps(
        {"topic": "travel plan, day by day", "decisions": ["step by step"], "facts": ["User is lost on Mars"]}
    )
    history: list[dict[str, Any]] = [{"role": "system", "content": "You are a travel agent."}]
    sizes: list[int] = []
    compressed = 0
    async with house(model, memory={"extraction_batch_size": 5}) as h:
        for turn in range(80):
            said = "I am allergic to peanuts." if turn == 3 else f"Step {turn}: tell me about day {turn}."
            history.append({"role": "user", "content": said})
            headers = await send(h, history, compress=True)
            sent = model.last_messages
            assert sent[0] == history[0]
            assert sent[-1] == history[-1]
            sizes.append(len(json.dumps(sent)) // 4)
            compressed = int(headers.get("x-memory-compressed", 0))
            history.append({"role": "assistant", "content": model.answer.strip()})
        assert len(json.dumps(history)) // 4 > 8_000
        assert max(sizes[-20:]) < 4_000
        assert compressed > 80
        assert "step by step" in block(h)
        assert "Mars" not in block(h)  # no user said so
        history[-1:] = [{"role": "user", "content": "Which snacks should I stay away from?"}]
        headers = await send(h, history, compress=True)
        assert "allergic to peanuts" in block(h)
        assert int(headers["x-memory-compressed"]) > 80
        assert len(model.last_messages) < 40


STATE = json.dumps({"topic": "day by day", "decisions": ["step by step", "plan my trip"]})


async def test_forgotten_memories_are_in_no_session_notes(house):
    model = ScriptedModel()
    model.roles["memory_state"] = STATE
    async with house(model, memory={"compress_step_turns": 1}) as h, httpx2.AsyncClient(timeout=30) as http:
        await ask(h, "From now on, call me Bo")
        for day in range(4):
            await ask(h, f"Please plan day {day} of my trip.")
        await until(lambda: value(len(model.asked)))
        await ask(h, "What rhymes with orange?")
        assert "] From now on, call me Bo" in block(h)
        answer = await http.delete(f"{h.base_url}/memory", params={"user_id": "alice"})
        assert answer.json()["deleted_sessions"] >= 1
        await ask(h, "What rhymes with orange?")
        assert block(h) == ""
