"""Insert the memory block into a list of messages: one small function for each placement.

None of them touches what stands before the block, so that the provider's prompt cache keeps hitting,
and none parts a tool call from its output: a user message never stands between the two.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.wire.content import speakers, with_text_after, with_text_before

Entries = list[Any]


@dataclass(frozen=True, slots=True)
class Form:
    """How one API writes messages."""

    role_of: Callable[[Any], str | None]  # of a list entry; None for what no Message is made of
    system: Callable[[str], dict[str, Any]]  # a system message that holds the text
    part_type: str  # of a text part in a request


def place(entries: Entries, block: str, placement: str, form: Form) -> Entries | None:
    """Return a new list with the block in it, or None where it has no place: there is no user message,
    or the message to extend has content of an unknown form. An unknown placement is a KeyError."""
    put = PLACEMENTS[placement]
    whose = speakers(entries, form.role_of)
    last_user = next((i for i in reversed(range(len(entries))) if whose[i] == "user"), None)
    return None if last_user is None else put(entries, last_user, block, form)


def _before_last_user(entries: Entries, last_user: int, block: str, form: Form) -> Entries | None:
    return [*entries[:last_user], form.system(block), *entries[last_user:]]


def _after_system(entries: Entries, last_user: int, block: str, form: Form) -> Entries | None:
    end = _end_of_system(entries, form)
    return [*entries[:end], form.system(block), *entries[end:]]


def _merge_system(entries: Entries, last_user: int, block: str, form: Form) -> Entries | None:
    end = _end_of_system(entries, form)
    if end == 0:
        return [form.system(block), *entries]
    content = with_text_after(entries[end - 1].get("content"), block, form.part_type)
    return _with_content(entries, end - 1, content)


def _in_user(entries: Entries, last_user: int, block: str, form: Form) -> Entries | None:
    content = with_text_before(entries[last_user].get("content"), block, form.part_type)
    return _with_content(entries, last_user, content)


PLACEMENTS: Mapping[str, Callable[[Entries, int, str, Form], Entries | None]] = {
    "before_last_user": _before_last_user,
    "after_system": _after_system,
    "merge_system": _merge_system,
    "in_user": _in_user,
}


def _end_of_system(entries: Entries, form: Form) -> int:
    leading = (i for i, entry in enumerate(entries) if form.role_of(entry) not in ("system", "developer"))
    return next(leading, len(entries))


def _with_content(entries: Entries, at: int, content: Any) -> Entries | None:
    if content is None:
        return None
    return [*entries[:at], {**entries[at], "content": content}, *entries[at + 1 :]]
