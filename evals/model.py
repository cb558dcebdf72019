"""The scripted upstream: it answers as the persona's assistant did, and extracts well or badly.

It remembers what it was shown, so that the evaluation can look at the injected block and at the
extraction prompts as a provider would see them.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evals.data import Fact, Message, Persona

ROLE = "(memory_extraction)"
_CONVERSATION = re.compile(r"<conversation>(.*)</conversation>", re.S)
KNOWN = re.compile(r"^\[(?P<id>[^\]]+)\] \([^)]*\) (?P<content>.*)$", re.M)
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_PART = re.compile(r"<(user|assistant)>\n(.*?)\n</\1>", re.S)
SEEN_SHARE = 0.6  # of a turn's sentences: some may have been redacted

Extractor = Callable[[str], str]
"""Gets an extraction prompt, returns the model's answer."""


def no_extractor(prompt: str) -> str:
    return '{"facts": []}'


@dataclass(slots=True)
class Model:
    """An upstream's answers. `replies`: what to say to a user's message, by its text."""

    replies: dict[str, str] = field(default_factory=dict)
    extract: Extractor = no_extractor
    shown: list[dict[str, Any]] = field(default_factory=list)  # the last conversation request's messages
    prompts: list[str] = field(default_factory=list)  # all extraction prompts
    prompted: asyncio.Event = field(default_factory=asyncio.Event)  # set with each of them

    def answer(self, body: dict[str, Any], agent: str) -> str:
        """Return the text with which to answer one chat completion request."""
        messages = body["messages"]
        if ROLE in agent:
            prompt = "\n".join(str(m["content"]) for m in messages if m["role"] == "user")
            self.prompts.append(prompt)
            self.prompted.set()
            return self.extract(prompt)
        self.shown = messages
        said = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        return self.replies.get(said, "All right.")

    def shown_text(self) -> str:
        """Return all text of the last conversation request."""
        return "\n".join(str(m.get("content") or "") for m in self.shown)


def replies_of(personas: Iterable[Persona]) -> dict[str, str]:
    """Return what the assistant said to each user turn."""
    replies = {}
    for session in (s for p in personas for s in p.sessions):
        for turn, following in zip(session.turns, session.turns[1:], strict=False):
            if turn.role == "user" and following.role == "assistant":
                replies[turn.content] = following.content
    return replies


# ---------------------------------------------------------------- what an extraction prompt holds
def conversation_of(prompt: str) -> str:
    """Return the part of the prompt that is to be extracted, without context and known memories."""
    found = _CONVERSATION.search(prompt)
    return found[1] if found else prompt


def flat(text: str) -> str:
    """Return the text's letters and digits, without case."""
    return "".join(c for c in text.casefold() if c.isalnum())


def sentences(text: str) -> list[str]:
    """Return the text's sentences and lines that say something."""
    return [s.strip() for s in _SENTENCE.findall(text) if len(flat(s)) > 1]


@dataclass(frozen=True, slots=True)
class Shown:
    """Whether a turn is in a prompt: most of its sentences are."""

    pieces: tuple[str, ...]

    @classmethod
    def of(cls, turn: Message) -> "Shown":
        return cls(tuple(flat(s) for s in sentences(turn.content)) or (flat(turn.content),))

    def is_in(self, text: str) -> bool:
        """True if `text`, flat, holds the turn."""
        return sum(p in text for p in self.pieces) >= SEEN_SHARE * len(self.pieces)

    def shows_in(self, text: str) -> bool:
        """True if `text`, flat, holds any of the turn's longest sentences: the rest may be redacted."""
        longest = sorted(self.pieces, key=len)[-3:]
        return any(p in text for p in longest)


# ---------------------------------------------------------------- a good model
class Good:
    """Answers with the gold facts whose evidence is in the batch, quoted, typed, with what they replace."""

    def __init__(self, personas: Sequence[Persona]) -> None:
        self._gold: list[tuple[Fact, Shown, str]] = []
        self._contents: dict[str, str] = {}
        for persona in personas:
            turns = {t.id: t for s in persona.sessions for t in s.turns}
            for _, fact in persona.facts():
                last = turns[fact.evidence[-1]]
                self._gold.append((fact, Shown.of(last), quote(fact.content, last.content)))
                self._contents[fact.id] = flat(fact.content)

    def __call__(self, prompt: str) -> str:
        said = flat(conversation_of(prompt))
        known = {flat(m["content"]): m["id"] for m in KNOWN.finditer(prompt)}
        facts: list[dict[str, Any]] = [
            {
                "type": fact.type,
                "content": fact.content,
                "confidence": 0.6 if fact.hedged else 0.95,
                "tags": [],
                "evidence": evidence,
                "replaces": known.get(self._contents.get(fact.supersedes or "", "")),
            }
            for fact, shown, evidence in self._gold
            if shown.is_in(said)
        ]
        return json.dumps({"facts": facts}, ensure_ascii=False)


class Unlinked(Good):
    """A good model that does not say what its facts replace: the proxy has to see it."""

    def __call__(self, prompt: str) -> str:
        facts = json.loads(super().__call__(prompt))["facts"]
        return json.dumps({"facts": [fact | {"replaces": None} for fact in facts]}, ensure_ascii=False)


def quote(content: str, turn: str) -> str:
    """Return the sentence of the turn that has most in common with the fact: what a model would quote."""
    wanted = grams(content)
    return max(sentences(turn) or [turn], key=lambda s: len(wanted & grams(s)) / (8 + len(grams(s))) ** 0.5)


def pieces(text: str) -> list[str]:
    """Return the text's sentences, flat; the whole text if it has none."""
    return [flat(s) for s in sentences(text)] or [flat(text)]


def grams(text: str) -> set[str]:
    """Return the text's runs of letters: four each, two in scripts without spaces."""
    letters = flat(text)
    size = 2 if any(c > "\u2e7f" for c in letters) else 4
    return {letters[i : i + size] for i in range(len(letters) - size + 1)}


# ---------------------------------------------------------------- a bad one
_WRONG_TYPES = ("fact", "memory", "semantic", "Preference", "episodic", "procedural")


def sloppy(prompt: str) -> str:
    """Answer with every sentence as a fact, the assistant's too, of any type, some twice, in a fence."""
    facts: list[dict[str, Any]] = []
    for role, text in _PART.findall(conversation_of(prompt)):
        for sentence in sentences(text):
            kind = _WRONG_TYPES[len(sentence) % len(_WRONG_TYPES)]
            fact: dict[str, Any] = {"type": kind, "content": sentence, "confidence": 0.95}
            if role == "user":
                fact["evidence"] = sentence
            facts += [fact] * (2 if len(sentence) % 5 == 0 else 1)
    return f"Sure! Here are the facts:\n```json\n{json.dumps(facts, ensure_ascii=False)}\n```\nDone."
