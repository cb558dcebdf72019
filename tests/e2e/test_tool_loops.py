"""An answer that continues after tool calls is one exchange in one session."""

from typing import Any

import pytest

from tests.e2e.chat_only import ChatOnly, tool_call
from tests.e2e.conftest import House, context, when
from tests.e2e.test_core_loop import ResponsesModel
from tests.support.upstream import Exchange, completion

ASKED = "My landlord is Tariq. When does the lease end?"
BEGUN, ENDED = "Let me look.", "It ends on 31 May, Tariq wrote."
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "lookup", "arguments": "{}"}
OUTPUT: Any = {"type": "function_call_output", "call_id": "c1", "output": "31 May"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "31 May"}
# Nothing is extracted while tools run; the end of the session is what calls for it.
LATE = {"extraction_batch_size": 50}


async def by_tool(exchange: Exchange) -> None:
    """Call a tool; then say what it returned."""
    made = completion(ENDED)
    if exchange.request.json["messages"][-1]["role"] != "tool":
        made = completion(BEGUN)
        made["choices"][0]["message"]["tool_calls"] = [tool_call("c1", "lookup", "{}")]
        made["choices"][0]["finish_reason"] = "tool_calls"
    await exchange.json(made)


class Native(ResponsesModel):
    """Speaks the Responses API, and calls a tool before it answers."""

    async def converse(self, exchange: Exchange) -> None:
        given = exchange.request.json["input"]
        if given[-1] == OUTPUT:
            self.answer = ENDED
            await super().converse(exchange)
        else:
            id_ = f"resp_{len(self.chats)}"
            await exchange.json({"id": id_, "object": "response", "status": "completed", "output": [CALL]})


NAMED: Any = context(session_id="s-1")


async def said(h: House, messages: list[Any]) -> Any:
    """Return the answer's message."""
    answer = await h.tell(messages, extra=NAMED)
    return answer.json()["choices"][0]["message"] if answer.is_success else answer.status_code


async def read(h: House, session: str) -> str:
    """What the extraction model is given of the session's exchanges, once it has ended."""
    await h.post(f"/memory/sessions/{session}/end?user_id=alice", {})
    await when(lambda: h.model.extractions)
    assert len(h.model.extractions) == 1
    return str(h.model.extractions[0].json["messages"][-1]["content"])


async def test_an_answer_after_tools_belongs_to_its_question(house):
    async with house(ChatOnly(script=by_tool), memory=LATE) as h:
        messages: list[Any] = [{"role": "user", "content": ASKED}]
        messages += [await said(h, messages), RESULT]
        assert (await said(h, messages))["content"] == ENDED
        heard = await read(h, "s-1")
        assert heard.count(ASKED) == 1
        assert BEGUN in heard
        assert ENDED in heard
        assert "31 May\n" not in heard.replace(ENDED, "")  # a tool's output is not stored


async def test_a_refused_step_removes_nothing(house):
    async def refusing(exchange):
        if exchange.request.json["messages"][-1]["role"] == "tool":
            await exchange.json({"error": {"message": "later"}}, 429)
        else:
            await by_tool(exchange)

    async with house(ChatOnly(script=refusing), memory=LATE) as h:
        messages: list[Any] = [{"role": "user", "content": ASKED}]
        messages += [await said(h, messages), RESULT]
        assert await said(h, messages) == 429
        assert ASKED in await read(h, "s-1")


@pytest.mark.parametrize("responses", ["native", "translate"])
async def test_a_chain_stays_in_its_session_through_tools(house, responses):
    model = Native() if responses == "native" else ChatOnly(script=by_tool)
    async with house(model, memory=LATE, upstream_extra={"responses": responses}) as h:
        sessions = set()
        previous: Any = {}
        for given in (ASKED, [OUTPUT], "And the deposit?"):
            answer = await h.post("/responses", {"model": "m", "input": given} | context() | previous)
            sessions.add(answer.headers["x-memory-session-id"])
            previous = {"previous_response_id": answer.json()["id"]}
        assert len(sessions) == 1
        heard = await read(h, sessions.pop())
        assert heard.count(ASKED) == 1
        assert ENDED in heard


@pytest.mark.parametrize("forgets", [False, True], ids=["side-by-side", "after-a-forget"])
async def test_two_tool_loops_of_one_session_keep_their_answers_apart(house, forgets):
    async def by_question(exchange):
        given = exchange.request.json["messages"]
        made = completion(f"Done: {given[-3]['content']}" if given[-1]["role"] == "tool" else "")
        if given[-1]["role"] != "tool":
            made["choices"][0]["message"]["tool_calls"] = [tool_call("c1", "lookup", "{}")]
        await exchange.json(made)

    async with house(ChatOnly(script=by_question), memory=LATE) as h:
        loops: list[list[Any]] = [[{"role": "user", "content": f"Job {n}"}] for n in range(3)]
        for number, messages in enumerate(loops):
            if forgets and number == 1:
                await h.forget()
            messages += [await said(h, messages), RESULT]
        for messages in (loops[0], loops[2], loops[1]):
            assert (await said(h, messages))["content"] == f"Done: {messages[0]['content']}"
        heard = await read(h, "s-1")
        assert ("Job 0" in heard) is not forgets
        order = [text for n in range(forgets, 3) for text in (f"Job {n}", f"Done: Job {n}")]
        assert sorted(order, key=heard.index) == order
        assert heard.count("Done: ") == len(order) / 2
