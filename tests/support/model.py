"""A scripted model behind a ScriptedUpstream: answers conversations and extracts scripted facts."""

import json
import re
from collections.abc import Callable
from typing import Any

from tests.support.upstream import Exchange, Received, completion, completion_events

Facts = Callable[[str], list[dict[str, Any]]]
"""Gets the conversation in the extraction prompt, returns facts."""


def no_facts(said: str) -> list[dict[str, Any]]:
    return []


def known(*facts: tuple[str, str]) -> Facts:
    """Return the facts whose cue occurs in what was said: (cue, content)."""
    return lambda said: [
        {"type": "semantic", "content": content, "confidence": 0.9} for cue, content in facts if cue in said
    ]


FRIENDS = re.compile(r"(?:I have|User has) a friend named (\w+)\.")


def said(name: str) -> str:
    """What a user says."""
    return f"I have a friend named {name}."


def fact(name: str) -> str:
    """What `friends` finds in it."""
    return f"User has a friend named {name}."


def friends(prompt: str) -> list[dict[str, Any]]:
    """Return each friend in the exchanges that are to be read, as a fact."""
    shown = "\n".join(re.findall(r"<exchange .*?</exchange>", prompt, re.S))
    return [
        {"type": "semantic", "content": fact(name), "confidence": 0.9, "evidence": said(name)}
        for name in dict.fromkeys(FRIENDS.findall(shown))
    ]


class ScriptedModel:
    """An upstream's script; it keeps conversation and extraction requests apart."""

    def __init__(self, answer: str = "All right.", facts: Facts = no_facts) -> None:
        self.answer, self.facts = answer, facts
        self.chats: list[Received] = []
        self.roles: dict[str, str] = {}  # what it answers in other memory roles; it knows none by itself
        self.asked: list[tuple[str, Received]] = []  # in them
        self.extractions: list[Received] = []

    async def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        agent = (request.header(b"user-agent") or b"").decode()
        if agent.startswith("memory-proxy/") and "(memory_extraction)" not in agent:
            role = agent.partition("(")[2].rstrip(")")
            self.asked.append((role, request))
            await exchange.json(completion(self.roles.get(role, self.answer)))
        elif "(memory_extraction)" in agent:
            self.extractions.append(request)
            said = str(request.json["messages"][-1]["content"]).split("<conversation>")[1]
            await exchange.json(completion(json.dumps({"facts": self.facts(said)})))
        else:
            self.chats.append(request)
            await self.converse(exchange)

    async def converse(self, exchange: Exchange) -> None:
        """Answer one conversation request; tests override this."""
        if exchange.request.json.get("stream"):
            await exchange.stream(*completion_events(*self.answer.split(" ")))
        else:
            await exchange.json(completion(self.answer))

    @property
    def last_messages(self) -> list[dict[str, Any]]:
        """The messages of the last conversation request, as the upstream saw them."""
        messages: list[dict[str, Any]] = self.chats[-1].json["messages"]
        return messages
