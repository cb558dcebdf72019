"""The scripted model in the roles that look at whole sessions: it sums up by quoting, and keeps facts.

Reads the prompts of `proxy/prompts/summary*` and `state*`; answers in their form.
"""

from collections.abc import Sequence

import orjson

from proxy.demo.extraction import told
from proxy.demo.rules import facts, is_question

_MOST = 300  # characters of a quotation
_AT_MOST = 8


def sum_up(prompts: Sequence[str]) -> str:
    """Return `{"summary": …}`: what the user stated, or asked where nothing was stated."""
    said = [" ".join(text.split()) for text in told(prompts)]
    stated = [text for text in said if not is_question(text)] or said
    quoted = _cut(" ".join(stated))
    summary = f"The user said: {quoted}" if quoted else ""
    return orjson.dumps({"summary": summary, "topics": [], "actions": [], "outcomes": []}).decode()


def keep_state(prompts: Sequence[str]) -> str:
    """Return the state: what is talked about now, and the facts that the user stated."""
    said = told(prompts)
    found = [fact.content for text in said for fact in facts(text, [])]
    topic = _cut(" ".join(said[-1].split())) if said else ""
    return orjson.dumps({"topic": topic[:120], "facts": found[-_AT_MOST:]}).decode()


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else text[:_MOST].rpartition(" ")[0]
