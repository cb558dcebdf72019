"""What a session keeps: standing instructions, its last turns, its state, and a summary once it has ended."""

import json
from typing import Any

from proxy.http import memory_work
from tests.e2e.conftest import House, Json, context, until, when
from tests.e2e.test_core_loop import ResponsesModel
from tests.support.model import ScriptedModel, known

FORTY = "Hawaii costs about forty dollars a day for food."
SUMMARY = {
    "summary": "The user planned a trip to Hawaii with Priya and settled on a budget of $10,000.",
    "topics": ["Hawaii trip"],
    "actions": ["compared hotels on Maui"],
    "outcomes": ["budget is $10,000"],
    "importance": 0.7,
}


async def ask(h: House, said: Any, session: str = "s-1", user: str = "alice", **config: Any) -> Any:
    """One request of a named session, by default without its history; returns the headers."""
    asked = context(user, session_id=session) | ({"memory_config": config} if config else {})
    answer = await h.tell(said, extra=asked)
    answer.raise_for_status()
    return answer.headers


async def test_a_standing_instruction_is_in_force_on_the_next_turn_and_until_it_is_ended(house):
    async with house() as h:
        await ask(h, "Please answer in Chinese from now on. Keep it short.")
        assert h.block == ""
        headers = await ask(h, "What rhymes with orange?")
        assert "] Please answer in Chinese from now on." in h.block
        assert "] Keep it short." in h.block
        assert (headers["x-memory-status"], headers["x-memory-reason"]) == ("injected", "session")
        assert headers["x-memory-count"] == "0"
        assert int(headers["x-memory-tokens"]) > 0
        await ask(h, "hi!")  # nothing is searched for a greeting
        assert "] Please answer in Chinese from now on." in h.block
        await ask(h, "What rhymes with orange?", "s-2")
        assert h.block == ""
        await ask(h, "What rhymes with orange?", user="bob")
        assert h.block == ""
        await ask(h, "You can answer in English again.")
        await ask(h, "What rhymes with silver?")
        assert "[anchor" in h.block
        assert "Chinese" not in h.block.partition("[turn")[0]


async def test_headers_do_not_claim_notes_that_had_no_place(house):
    def claimed(headers):
        return [headers[f"x-memory-{name}"] for name in ("status", "reason", "count", "tokens")]

    async with house() as h:
        await ask(h, "Please answer in Chinese from now on.")
        system = [{"role": "system", "content": "You are terse."}]
        assert claimed(await ask(h, system)) == ["none", "no_place", "0", "0"]
        assert h.model.last_messages == system
    output: Any = {"type": "function_call_output", "call_id": "c1", "output": "42"}
    async with house(ResponsesModel()) as h:
        first = await h.post("/responses", {"model": "m", "input": "Hello!"} | context())
        step = {"model": "m", "input": [output], "previous_response_id": first.json()["id"]}
        answer = await h.post("/responses", step | context(session_id="s-1"))
        assert claimed(answer.headers) == ["none", "no_place", "0", "0"]
        assert h.model.chats[-1].json["input"] == [output]


async def test_a_session_without_history_is_reminded_of_its_last_turns(house):
    async with house(ScriptedModel(answer=FORTY)) as h:
        for text in ("How much is food in Hawaii?", "And the flights?", "And the hotels?", "And a car?"):
            await ask(h, text)
        # Its answer is on the disk once it is read for facts; the client has it a little earlier.
        await when(lambda: any("And a car?" in str(r.json) for r in h.model.extractions))
        await ask(h, "So what is the total?")
        turns = [line for line in h.block.splitlines() if line.startswith("[turn ")]
        assert len(turns) == 3
        assert turns[0].endswith(f"] user: And the flights? — assistant: {FORTY}")
        assert "And a car?" in turns[-1]
        await ask(h, [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"},
                       {"role": "user", "content": "So what is the total?"}])  # fmt: skip
        assert "[turn " not in h.block


async def test_the_next_turn_knows_the_last_however_fast_it_comes(house, monkeypatch):
    monkeypatch.setattr(memory_work, "WAIT_S", 4.0)  # a busy disk takes longer than a request would wait
    async with house(ScriptedModel(answer=FORTY)) as h:
        await h.add("User's ferry to Naxos costs 90 euros.")
        for number in range(5):
            for text in (f"Let us talk about the ferry to Naxos, option {number}.", "How much?"):
                headers = await ask(h, text, f"quick-{number}")
            assert "[turn " in h.block
            assert headers["x-memory-count"] == "1"


# ---------------------------------------------------------------- summaries
async def end(h: House) -> None:
    assert (await h.post("/memory/sessions/s-1/end?user_id=alice", {})).status_code == 202


async def talk(h: House) -> None:
    await ask(h, "I am planning a trip to Hawaii with Priya in spring.")
    await ask(h, "Please compare hotels on Maui for the two of us.")
    await ask(h, "Our budget is $10,000 in all, flights included.")


async def test_a_session_that_ended_is_summed_up_once(house):
    model = ScriptedModel(answer="Here are hotels on Maui.")
    model.roles["memory_summary"] = json.dumps(SUMMARY)
    async with house(model, memory={"extraction_batch_size": 2, "personal_idle_seconds": 0.6}) as h:
        await talk(h)
        await end(h)
        (memory,) = await until(lambda: h.memories(type="episodic"))
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
        (later,) = await until(
            lambda: h.memories(type="episodic"), lambda found: found[0]["id"] != memory["id"]
        )
        assert later["content"].startswith(again["summary"])


# ---------------------------------------------------------------- compression
async def test_a_conversation_of_40_turns_stays_small_and_knows_what_was_said(house):
    model = ScriptedModel(facts=known(("allergic", "User is allergic to peanuts.")))
    model.answer = "Noted, and here is a longer explanation of it. " * 16
    model.roles["memory_state"] = json.dumps(
        {"topic": "travel plan, day by day", "decisions": ["step by step"], "facts": ["User is lost on Mars"]}
    )
    history: list[Json] = [{"role": "system", "content": "You are a travel agent."}]
    async with house(model, memory={"extraction_batch_size": 5}) as h:
        for turn in range(40):
            said = "I am allergic to peanuts." if turn == 3 else f"Step {turn}: tell me about day {turn}."
            history.append({"role": "user", "content": said})
            headers = await ask(h, history, compress=True)
            sent = model.last_messages
            assert (sent[0], sent[-1]) == (history[0], history[-1])
            history.append({"role": "assistant", "content": model.answer.strip()})
            if turn % 5 == 4:
                await h.quiet()
        assert len(json.dumps(history)) // 4 > 8_000
        assert len(json.dumps(sent)) // 4 < 4_000
        assert int(headers["x-memory-compressed"]) > 40
        assert ("step by step" in h.block, "Mars" in h.block) == (True, False)  # no user said so
        history[-1:] = [{"role": "user", "content": "Which snacks should I stay away from?"}]
        headers = await ask(h, history, compress=True)
        assert "allergic to peanuts" in h.block
        assert int(headers["x-memory-compressed"]) > 40


STATE = json.dumps({"topic": "day by day", "decisions": ["step by step", "plan my trip"]})


async def test_forgotten_memories_are_in_no_session_notes(house):
    model = ScriptedModel()
    model.roles["memory_state"] = STATE
    async with house(model, memory={"compress_step_turns": 1}) as h:
        await ask(h, "From now on, call me Bo")
        for day in range(4):
            await ask(h, f"Please plan day {day} of my trip.")
        await when(lambda: model.asked)
        await ask(h, "What rhymes with orange?")
        assert "] From now on, call me Bo" in h.block
        assert (await h.forget())["deleted_sessions"] >= 1
        await ask(h, "What rhymes with orange?")
        assert h.block == ""
