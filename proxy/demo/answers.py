"""What the scripted model answers, as a chat model and in the roles in which the proxy calls a model.

It understands nothing. As a chat model it quotes the first remembered line, so the choice of the memory is
the proxy's. As the extraction model it returns the user's own sentences: the proxy's write gate, with its
trained heads, decides which of them become memories.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import orjson

from proxy.text.markup import CLOSE, OPEN, strip_blocks
from proxy.text.sentences import is_question, sentences

MODEL = "scripted-demo"
MAX_FACTS = 10
MIN_SENTENCE_CHARS = 6  # "Hi!" states nothing
MAX_TOPIC_CHARS = 120

_BLOCK = re.compile(rf"^{re.escape(OPEN)}\n(.*?)(?:{re.escape(CLOSE)}|\Z)", re.DOTALL | re.MULTILINE)
# A memory's label ends in its id ("[semantic 2026-01-14 #ab12cd34] …"); lines of session notes have none.
_LINE = re.compile(r"^\[[^\]\n]+ #[\w-]+\] (.+)$", re.MULTILINE)
# The form of proxy/prompts/. A text cannot imitate it: the proxy escapes these tags in what it quotes.
_CONVERSATION = re.compile(r"<conversation>\n(.*?)\n</conversation>", re.DOTALL)
_USER = re.compile(r"^<user>\n(.*?)\n?</user>$", re.DOTALL | re.MULTILINE)

_NOTED = ("Noted.", "Thank you, noted.", "Good to know.", "All right.", "Understood.")
_GREETINGS = (
    "Hello! I am a scripted demo model, not an AI. Say something about yourself, then ask about it in a new"
    " session.",
    "Hi! I only follow a script. State a fact, such as a budget or a preference, and ask for it later.",
)
_UNKNOWN = (
    "I do not know: memory has nothing about that.",
    "I do not know that. Nothing in memory answers it.",
    "I cannot answer that: no memory came with your question.",
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, as plain text."""

    role: str
    text: str


def answer(messages: Sequence[Message]) -> str:
    """Return the answer to the last user message."""
    asked = next((strip_blocks(m.text).strip() for m in reversed(messages) if m.role == "user"), "")
    if not any(map(is_question, sentences(asked))):
        return _one_of(_NOTED if statements(asked) else _GREETINGS, asked)
    remembered = _first_memory(messages)
    return f'From memory: "{remembered}"' if remembered else _one_of(_UNKNOWN, asked)


def statements(text: str) -> list[str]:
    """Return the user's sentences that are no questions, letter by letter."""
    return [s for s in sentences(text) if len(s) >= MIN_SENTENCE_CHARS and not is_question(s)]


def extract(prompt: str) -> str:
    """Return every statement of the user in the prompt as a fact, in the form that the prompt asks for."""
    found = dict.fromkeys(s for said in _said(prompt) for s in statements(said))
    common = {"type": "semantic", "confidence": 0.9, "tags": [], "replaces": None}
    return _json({"facts": [{**common, "content": s, "evidence": s} for s in list(found)[:MAX_FACTS]]})


def summarise(prompt: str) -> str:
    """Return an empty summary: the proxy stores none."""
    return _json({"summary": "", "topics": [], "actions": [], "outcomes": []})


def session_state(prompt: str) -> str:
    """Return the session's state: the last message as its topic, and the latest statements."""
    said = _said(prompt)
    facts = [s for text in said for s in statements(text)]
    return _json({"topic": " ".join(said[-1].split())[:MAX_TOPIC_CHARS] if said else "", "facts": facts[-8:]})


ROLES: Mapping[str, Callable[[str], str]] = {
    "memory_extraction": extract,
    "memory_summary": summarise,
    "memory_state": session_state,
}


def _first_memory(messages: Sequence[Message]) -> str:
    """Return the first memory that was injected, which is the proxy's best match; "" for none."""
    lines = (line for m in messages for block in _BLOCK.findall(m.text) for line in _LINE.findall(block))
    return next(lines, "")


def _said(prompt: str) -> list[str]:
    conversation = _CONVERSATION.search(prompt)
    return _USER.findall(conversation[1]) if conversation else []


def _one_of(lines: Sequence[str], text: str) -> str:
    """Return one of the lines: the same text always gets the same line."""
    return lines[crc32(text.encode()) % len(lines)]


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
