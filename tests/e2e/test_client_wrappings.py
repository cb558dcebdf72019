# ruff: noqa: E501  the lines are as clients write them
"""What clients put around the user's words: forwarded unchanged, and never a memory."""

import json
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import House, until
from tests.e2e.test_core_loop import context, has, stored
from tests.support.model import ScriptedModel, known

OPEN_WEBUI = """### Task:
Respond to the user query using the provided context, incorporating inline citations in the format [id] **only \
when the <source> tag includes an explicit id attribute** (e.g., <source id="1">).

### Output:
Provide a clear and direct response to the user's query.

<context>
<source id="1" name="cv.pdf">Curriculum vitae. Hanna Brandt lives in Oslo.
</context>
I moved to Lisbon in May.</source>
</context>

"""
CLINE_ENVIRONMENT = """<environment_details>
# VSCode Visible Files
src/pay.ts

# Current Time
11/28/2026, 9:14:02 AM (Europe/Berlin, UTC+1:00)

# Current Mode
ACT MODE
</environment_details>"""
REMINDER = """<system-reminder>
As you answer the user's questions, you can use the following context:
# userEmail
The user's email address is kim@shop.example.

      IMPORTANT: this context may or may not be relevant.
</system-reminder>"""
CODEX = [
    "# AGENTS.md instructions for /home/kim/shop\n\n<INSTRUCTIONS>\nAnswer in Dutch from now on.\n</INSTRUCTIONS>",
    "<environment_context>\n  <cwd>/home/kim/shop</cwd>\n  <shell>zsh</shell>\n</environment_context>",
]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def users(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


async def chat(h: House, messages: list[dict[str, Any]], **extra: Any) -> Any:
    """One request as an unmodified client makes it; returns the answer's headers."""
    async with httpx2.AsyncClient(timeout=30) as http:
        body = {"model": "m", "messages": messages} | context("alice") | extra
        answer = await http.post(f"{h.base_url}/chat/completions", json=body)
        answer.raise_for_status()
    return answer.headers


async def add(h: House, *facts: str) -> None:
    async with httpx2.AsyncClient(timeout=30) as http:
        for fact in facts:
            made = await http.post(f"{h.base_url}/memory", json={"user_id": "alice", "content": fact})
            assert made.status_code == 201


def blocks(h: House) -> list[str]:
    """The messages that were injected into the last request, as the upstream got them."""
    return [m["content"] for m in h.model.last_messages if m["role"] == "system"]


# L1 to L5: (messages, facts that a model takes from the wrapping)
CONTEXT: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "Open WebUI": (
        users(OPEN_WEBUI + "By the way, my cat is called Miso."),
        [("Oslo", "User lives in Oslo."), ("Lisbon", "User moved to Lisbon."), ("cite", "User wants citations.")],
    ),
    "Codex": (
        users(*CODEX, "My cat is called Miso, remember that."),
        [("zsh", "User's shell is zsh."), ("Dutch", "User wants answers in Dutch.")],
    ),
    "a friend's post": (
        users('Jo posted this:\n\n"""\nI moved to Lisbon in May.\n"""\n\nWhat do I reply? My cat is called Miso, remember that.'),
        [("Lisbon", "User moved to Lisbon.")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTEXT)
async def test_nothing_is_learnt_from_client_wrappings_or_pasted_text(house, case):
    messages, wrong = CONTEXT[case]
    model = ScriptedModel(facts=known(*wrong, ("Miso", "User's cat is called Miso.")))
    async with house(model) as h:
        headers = await chat(h, messages)
        assert headers["x-memory-store"] == "queued"
        assert h.model.last_messages == messages  # unchanged
        found = await until(lambda: stored(h, "alice"), has(1))
        assert [m["content"] for m in found] == ["User's cat is called Miso."]
        assert not any(cue in str(r.json["messages"][-1]) for r in model.extractions for cue, _ in wrong)


async def test_a_message_without_the_users_words_gets_no_memory_and_leaves_none(house):
    async with house(ScriptedModel(facts=known(("a", "User is called Kim.")))) as h:
        await add(h, "User's email is kim@work.example.")
        for text in (REMINDER, CODEX[0], "```\nI am a nurse in Lisbon. Remember that.\n```"):
            headers = await chat(h, users(text), memory_context={"user_id": "alice", "session_id": "s-1"})
            assert headers["x-memory-reason"] == "no_query"
            assert headers["x-memory-session-id"] == "s-1"
            assert h.model.last_messages == users(text)
        await chat(h, users("Hello!"), memory_context={"user_id": "alice", "session_id": "s-1"})
        async with httpx2.AsyncClient(timeout=30) as http:
            sessions = (await http.get(f"{h.base_url}/memory/sessions", params={"user_id": "alice"})).json()
        assert "Lisbon" not in json.dumps(sessions)
        assert len(await stored(h, "alice")) == 1


async def test_no_instruction_of_one_conversation_rules_another_that_begins_alike(house):
    """O17: both begin with "hi" and get the same answer; neither names its session."""
    answered = {"role": "assistant", "content": "All right."}
    async with house() as h:
        await chat(h, users("hi"))
        begun = [*users("hi"), answered]
        await chat(h, [*begun, *users("Answer in French from now on."), answered, *users("What rhymes?")])
        await chat(h, users("hi"))
        await chat(h, [*begun, *users("What rhymes with orange?")])
        assert "French" not in str(h.model.last_messages)
        assert blocks(h) == []


def called(number: int) -> list[dict[str, Any]]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": "The ferry to Naxos leaves at 7:30."},
    ]


def turns_of(number: int) -> list[dict[str, Any]]:
    """The same where the model calls tools in its text, as Cline's does."""
    result = f"[read_file for 'a{number}.md'] Result:\nThe ferry leaves at 7:30.\n{CLINE_ENVIRONMENT}"
    return [
        {"role": "assistant", "content": f"<read_file><path>a{number}.md</path></read_file>"},
        *users(result),
    ]


@pytest.mark.parametrize(
    ("step", "extra"), [(called, {"tools": TOOLS}), (turns_of, {})], ids=["calls", "in the text"]
)
async def test_one_block_holds_for_one_tool_loop(house, step, extra):
    """O18: the prompt of each step begins with the prompt of the step before, byte for byte."""
    messages = users("Hello", f"<task>\nWhen does my ferry to Naxos leave?\n</task>\n{CLINE_ENVIRONMENT}")
    messages.insert(1, {"role": "assistant", "content": "All right."})
    async with house() as h:
        await add(h, "The ferry to Naxos leaves at 7:30 from Piraeus.")
        await chat(h, messages, **extra)
        sent = h.model.last_messages
        assert len(blocks(h)) == 1
        for number in range(10):
            await add(h, f"The ferry to Naxos of line {number} leaves from gate {number}.")
            messages = [*messages, *step(number)]
            headers = await chat(h, messages, **extra)
            assert headers["x-memory-count"] == "1"
            assert h.model.last_messages[: len(sent)] == sent
            sent = h.model.last_messages
        await chat(
            h, [*messages, {"role": "assistant", "content": "7:30."}, *users("And my ferry's gate?")], **extra
        )
        assert "gate 9" in blocks(h)[-1]


async def test_what_is_forgotten_leaves_the_block_of_a_loop_under_way(house):
    messages = users("When does my ferry to Naxos leave?")
    async with house() as h:
        await add(h, "The ferry to Naxos leaves at 7:30 from Piraeus.")
        await chat(h, messages, tools=TOOLS)
        assert "Piraeus" in str(blocks(h))
        async with httpx2.AsyncClient(timeout=30) as http:
            (await http.delete(f"{h.base_url}/memory", params={"user_id": "alice"})).raise_for_status()
        await chat(h, [*messages, *called(1)], tools=TOOLS)
        assert blocks(h) == []
