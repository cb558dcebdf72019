"""The scripted model in the role of the extraction model: the prompt in, `{"facts": […]}` out.

Reads the prompt of `proxy/prompts/`: what the user said between <conversation> and </conversation>, and
the ids between <known_memories> and </known_memories>.
"""

import re
from collections.abc import Sequence

import orjson

from proxy.demo.rules import Fact, facts
from proxy.demo.slots import Known

_AT_MOST = 10
# Texts cannot fake these: the proxy defuses every "</" and "<exchange" in them.
_EXCHANGE = re.compile(r"""<exchange date="[^"\n]*">\s*<user>\n(?P<said>.*?)\n?</user>""", re.DOTALL)
# For prompts of another make: "user: …", up to the next speaker.
_SPEAKER = re.compile(
    r"^[^A-Za-z\n]{0,40}(?P<role>user|human|assistant|ai|system|developer|tool)\b[^A-Za-z\n:]{0,40}:[ ]?",
    re.IGNORECASE | re.MULTILINE,
)
_KNOWN = re.compile(r"^[-* ]*\[#?(?P<id>[^\]\s]+)\] (?:\([^)\n]*\) )?(?P<content>\S.*)$", re.MULTILINE)


def extract(prompts: Sequence[str]) -> str:
    """Return the extraction model's answer to the prompt."""
    prompt = "\n".join(prompts)
    known = [Known(m["id"], m["content"]) for m in _KNOWN.finditer(_section(prompt, "known_memories"))]
    found: list[dict[str, object]] = []
    for spoken in _spoken(_section(prompt, "conversation") or prompt):
        found += (_shown(fact) for fact in facts(spoken, known))
    return orjson.dumps({"facts": found[:_AT_MOST]}).decode()


def told(prompts: Sequence[str]) -> list[str]:
    """Return what the user said in the conversation of the prompt, in order."""
    prompt = "\n".join(prompts)
    return _spoken(_section(prompt, "conversation") or prompt)


def _section(prompt: str, name: str) -> str:
    """Return what stands in the first <name> … </name>, "" where there is none."""
    return prompt.partition(f"<{name}>\n")[2].partition(f"\n</{name}>")[0]


def _spoken(section: str) -> list[str]:
    """Return the user's texts, in their order."""
    if exchanges := [m["said"] for m in _EXCHANGE.finditer(section)]:
        return exchanges
    # split() gives what precedes the first speaker, then role and text in turn.
    parts = _SPEAKER.split(section)[1:]
    return [text for role, text in zip(parts[::2], parts[1::2], strict=True) if role.lower() in _USERS]


_USERS = ("user", "human")


def _shown(fact: Fact) -> dict[str, object]:
    return {
        "type": fact.type,
        "content": fact.content,
        "confidence": fact.confidence,
        "tags": [],
        "evidence": fact.evidence,
        "replaces": fact.replaces,
    }
