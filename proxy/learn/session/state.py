"""Update a session's state: one LLM call from the state so far and the exchanges since, and the checks on
its answer.

The state stands in for turns that are no longer shown (pipeline/compress), so the question is always which
exchanges it may stand for: `covers`. The conversation is data: redacted, planted instructions cut out, our
own markers in it defused. The model's answer is data too: known keys only, bounded, checked like a memory.
"""

import json
import re
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from proxy.admit.safety.filters import REDACTED, clean
from proxy.admit.safety.planted import REMOVED
from proxy.admit.safety.policy import DEFAULT, SafetyPolicy
from proxy.domain.core import Exchange
from proxy.domain.ports import CompletionRequest
from proxy.learn.extraction.repair import objects
from proxy.learn.extraction.transcript import defused, in_full
from proxy.prompts import prompt
from proxy.text.terms import terms

ROLE = "memory_state"
# In the order in which they are shown, and in which they find room where the answer is too long.
TOPIC = "topic"
LISTS = (
    "goals",
    "decisions",
    "facts",
    "constraints",
    "preferences_now",
    "open_points",
    "files_or_ids",
)
State = dict[str, str | list[str]]

MAX_SAID = 6_000  # characters; more is a paste that no state can stand for
_MAX_ANSWER, _MAX_TOTAL = 6_000, 40_000
_MAX_ITEMS, _MAX_ITEM, _MAX_BYTES = 8, 240, 1_200  # a field, characters an item, in all: some 300 tokens
_SUPPORT = 0.5  # share of an item's words that were said; a state is worded anew more freely than a fact
_GARBLED = re.compile("[\ud800-\udfff\ufffd]")  # half of an emoji cannot be stored


def request(
    previous: Mapping[str, Any] | None, exchanges: Sequence[Exchange], policy: SafetyPolicy = DEFAULT
) -> CompletionRequest:
    """Return the LLM call that makes the state after the exchanges, which are a `portion` of them."""
    last = exchanges[-1]
    state = json.dumps(previous, ensure_ascii=False) if previous else "(none yet)"
    user = Template(prompt("state_input.v1")).substitute(
        state=defused(state), exchanges=_told(exchanges, policy)
    )
    return CompletionRequest(
        role=ROLE,
        system=prompt("state.v1"),
        user=user,
        model=last.model,
        scope=last.scope,
        session_id=last.session_id,
    )


def portion(exchanges: Sequence[Exchange]) -> Sequence[Exchange]:
    """Return as many of the first exchanges as one call may hold, at least one; ask again for the rest."""
    total = 0
    for count, exchange in enumerate(exchanges):
        total += min(len(exchange.said), MAX_SAID) + min(len(exchange.answer), _MAX_ANSWER)
        if count and total > _MAX_TOTAL:
            return exchanges[:count]
    return exchanges


def covers(exchange: Exchange, *, is_rule: bool) -> bool:
    """True if a state that was made from the exchange may stand for it. `is_rule`: it sets a standing rule.

    The user's words were then read to the last one, and the exchange had an end. Not so a long paste, nor
    words that had a secret or a planted instruction taken out, nor a question whose answer nobody saw. And
    a rule for the rest of the conversation ("from now on …") has the user's authority only in the user's
    own message: such a turn stays. Of a long answer the state has read the beginning and the end.
    """
    said = exchange.said
    if not exchange.answer.strip() or len(said) > MAX_SAID or REDACTED in said:
        return False
    return clean(said) == said and not is_rule


def read(answer: str, policy: SafetyPolicy = DEFAULT) -> State | None:
    """Return the state that the answer holds, however it is wrapped; None where it holds none.

    Of known keys only, items that may not be stored left out, at most some 300 tokens.
    """
    return next((state for found in objects(answer) if (state := _bounded(found, policy))), None)


def grounded(
    state: State,
    previous: Mapping[str, Any] | None,
    exchanges: Sequence[Exchange],
    policy: SafetyPolicy = DEFAULT,
) -> State | None:
    """Return the state without what neither the previous one nor the exchanges say, None where nothing is
    left: it would stand in the place of turns that it does not know."""
    known = json.dumps(previous or {}, ensure_ascii=False)
    said = frozenset(terms(known + "\n" + _told(exchanges, policy)))
    given = {key: [value] if isinstance(value, str) else value for key, value in state.items()}
    kept = {key: [item for item in items if _is_said(item, said)] for key, items in given.items()}
    return {key: items[0] if key == TOPIC else items for key, items in kept.items() if items} or None


def _told(exchanges: Sequence[Exchange], policy: SafetyPolicy) -> str:
    return "\n".join(in_full(exchange, policy, most_answer=_MAX_ANSWER) for exchange in exchanges)


def _is_said(item: str, said: frozenset[str]) -> bool:
    words = frozenset(terms(item))
    return len(words & said) >= _SUPPORT * len(words)


# ---------------------------------------------------------------- the answer
def _bounded(value: Mapping[str, Any], policy: SafetyPolicy) -> State:
    """Return what of the object is state, {} where nothing is; fields take turns while there is room."""
    topic = next(iter(_items(value.get(TOPIC), policy)), "")
    wanted = {key: _items(value.get(key), policy) for key in LISTS}
    left = _MAX_BYTES - len(topic.encode())
    lists: dict[str, list[str]] = {key: [] for key in LISTS}
    for rank in range(_MAX_ITEMS):
        for key, items in wanted.items():
            if rank < len(items) and (size := len(items[rank].encode())) <= left:
                lists[key].append(items[rank])
                left -= size
    state: State = {TOPIC: topic} if topic else {}
    return state | {key: items for key, items in lists.items() if items}


def _items(value: Any, policy: SafetyPolicy) -> list[str]:
    """Return the texts of a field, written as a list, one text or, by sloppy models, an object."""
    if isinstance(value, dict):
        value = [f"{key}: {item}" for key, item in value.items() if _is_plain(item)]
    given = value if isinstance(value, list) else [value]
    texts = (" ".join(str(item).split()) for item in given if _is_plain(item))
    return [text for text in dict.fromkeys(texts) if _is_fit(text, policy)][:_MAX_ITEMS]


def _is_plain(item: Any) -> bool:
    return isinstance(item, str | int | float) and not isinstance(item, bool)


def _is_fit(text: str, policy: SafetyPolicy) -> bool:
    if not any(c.isalnum() for c in text) or len(text) > _MAX_ITEM or _GARBLED.search(text):
        return False
    return REMOVED not in text and REDACTED not in text and clean(text, policy) == text
