"""Exchanges as the extraction model sees them: redacted, planted instructions cut out, bounded, defused.

The same text is what evidence is looked for in, so that nothing can be quoted that was not shown.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from proxy.admit.safety.filters import clean
from proxy.admit.safety.policy import SafetyPolicy
from proxy.domain import timezones
from proxy.domain.core import DEFAULT_TIMEZONE, Exchange, Memory

_MAX_SAID, _MAX_ANSWER, _MAX_CONTEXT, _MAX_TOTAL = 6_000, 2_000, 600, 40_000  # characters
_SECTION = re.compile(
    r"<(?=\s{0,3}/?\s{0,3}(?:known_memories|context|conversation|exchange|earlier|state|user|assistant)\b)",
    re.I,
)

# A job looks at each of its texts four times: for the model, as the source of what is quoted, and twice for
# the session's state. As many as a few jobs have.
_cleaned = lru_cache(maxsize=64)(clean)


def said(exchange: Exchange, policy: SafetyPolicy) -> str:
    """Return the user's text, cleaned before it is cut: half an instruction has no shape to know it by."""
    return _cut(_cleaned(exchange.said, policy), _MAX_SAID)


def answer(exchange: Exchange, policy: SafetyPolicy) -> str:
    """Return the assistant's text, cleaned and then cut, without what a tool printed."""
    return _cut(_cleaned(_without_code(exchange.answer), policy), _MAX_ANSWER)


def conversation(exchanges: Sequence[Exchange], policy: SafetyPolicy) -> str:
    """Return the exchanges to extract from; when they are long together, the middle of each gives way."""
    parts = [_exchange(e, policy) for e in exchanges]
    total = sum(map(len, parts))
    if total > _MAX_TOTAL:
        parts = [_cut(p, max(400, len(p) * _MAX_TOTAL // total)) for p in parts]
    return "\n".join(parts)


def earlier(exchanges: Sequence[Exchange], policy: SafetyPolicy) -> str:
    """Return exchanges that were dealt with and are shown for context only."""
    return "\n".join(_earlier(e, policy) for e in exchanges)


def memory_line(memory: Memory, policy: SafetyPolicy, timezone: str = DEFAULT_TIMEZONE) -> str:
    """Return a known memory in one line: its id, its type, the day from which it holds, its content."""
    since = timezones.local(memory.valid_from, timezone).date().isoformat()
    content = " ".join(defused(clean(memory.content, policy)).split())
    return f"[{memory.id}] ({memory.type}, {since}) {content}"


def in_full(exchange: Exchange, policy: SafetyPolicy, *, most_answer: int) -> str:
    """Return an exchange with the answer as it came, code included."""
    answered = _cut(_cleaned(exchange.answer, policy), most_answer)
    return _framed(exchange, said(exchange, policy), answered)


def defused(text: str) -> str:
    """Return the text unable to open or close our sections."""
    return _SECTION.sub("‹", text)


def _exchange(exchange: Exchange, policy: SafetyPolicy) -> str:
    return _framed(exchange, said(exchange, policy), answer(exchange, policy))


def _framed(exchange: Exchange, user: str, assistant: str) -> str:
    return (
        f'<exchange date="{_date(exchange)}">\n<user>\n{defused(user)}\n</user>\n'
        f"<assistant>\n{defused(assistant)}\n</assistant>\n</exchange>"
    )


def _earlier(exchange: Exchange, policy: SafetyPolicy) -> str:
    user, assistant = (
        defused(_cut(_cleaned(t, policy), _MAX_CONTEXT)) for t in (exchange.said, exchange.answer)
    )
    return f'<earlier date="{_date(exchange)}">\nuser: {user}\nassistant: {assistant}\n</earlier>'


def _date(exchange: Exchange) -> str:
    return f"{exchange.local:%Y-%m-%d %H:%M} {exchange.timezone}, {exchange.local:%A}"


def _cut(text: str, limit: int) -> str:
    """Keep beginning and end: people put what they want before or after a paste."""
    if len(text) <= limit:
        return text
    return f"{text[: limit * 2 // 3]}\n[… cut …]\n{text[-limit // 3 :]}"


def _without_code(text: str) -> str:
    """Return an answer without fenced blocks: code and tool output are no facts about the user."""
    parts = text.split("```")
    return "[code]".join(parts[::2]) if len(parts) > 1 else text
