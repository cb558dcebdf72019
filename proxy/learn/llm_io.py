"""What our LLM calls are shown of a conversation, and how their answers are read.

Exchanges are shown redacted, planted instructions cut out, bounded and defused. Evidence is looked for in the
same text, so that nothing can be quoted that was not shown.

Models answer with fences, <think> blocks, prose around the JSON, one object instead of a list, one object a
line, other key names, facts grouped by type, JSON within JSON, as a tool call, as YAML or XML, or cut off in
the middle. json-repair reads what is not valid JSON, up to the last closing bracket, so that a fact that was
cut off is left out. Whole facts of a known type are read, others dropped. What cannot be read raises
Unreadable.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from string import Template
from typing import Any

from proxy.admit.safety import SafetyPolicy, clean
from proxy.domain.core import DEFAULT_TIMEZONE, STATED_KINDS, Candidate, Memory, Scope
from proxy.domain.ports import CompletionRequest
from proxy.domain.session import Exchange
from proxy.prompts import prompt
from proxy.text.dates import local_time
from proxy.text.words import NAME_KINDS, key_of
from proxy.wire.authorship import without_thoughts

# ---------------------------------------------------------------- exchanges as text
_MAX_SAID, _MAX_ASSISTANT, _MAX_CONTEXT, _MAX_TOTAL = 6_000, 2_000, 600, 40_000  # characters
_SECTION = re.compile(
    r"<(?=\s{0,3}/?\s{0,3}(?:known_memories|memories|context|conversation|exchange|earlier|state|user|assistant)\b)",
    re.I,
)

# A job cleans each text four times: for the model, for grounding, and twice for the session's state.
_cleaned = lru_cache(maxsize=64)(clean)


def user_text(exchange: Exchange, policy: SafetyPolicy) -> str:
    """Return the user's text, cleaned, then cut: half an instruction could not be detected."""
    return _cut(_cleaned(exchange.said, policy), _MAX_SAID)


def assistant_text(exchange: Exchange, policy: SafetyPolicy) -> str:
    """Return the assistant's text, cleaned and cut, without fenced blocks, which are not facts."""
    parts = exchange.answer.split("```")
    return _cut(_cleaned("[code]".join(parts[::2]), policy), _MAX_ASSISTANT)


def conversation(exchanges: Sequence[Exchange], policy: SafetyPolicy) -> str:
    """Return the exchanges to extract from; if they are too long together, the middle of each is cut."""
    parts = [_framed(e, user_text(e, policy), assistant_text(e, policy)) for e in exchanges]
    total = sum(map(len, parts))
    if total > _MAX_TOTAL:
        parts = [_cut(p, max(400, len(p) * _MAX_TOTAL // total)) for p in parts]
    return "\n".join(parts)


def earlier(exchanges: Sequence[Exchange], policy: SafetyPolicy) -> str:
    """Return exchanges that were extracted before, shown for context only."""
    return "\n".join(
        f'<earlier date="{_date(e)}">\nuser: {defused(_cut(_cleaned(e.said, policy), _MAX_CONTEXT))}\n'
        f"assistant: {defused(_cut(_cleaned(e.answer, policy), _MAX_CONTEXT))}\n</earlier>"
        for e in exchanges
    )


def memory_line(
    memory: Memory, policy: SafetyPolicy, timezone: str = DEFAULT_TIMEZONE, label: object = None
) -> str:
    """Return a memory in one line: its id or another label, its type, first day and content."""
    since = local_time(memory.valid_from, timezone).date().isoformat()
    content = " ".join(defused(clean(memory.content, policy)).split())
    replaced = ", replaced since" if memory.superseded_by else ""
    return f"[{label or memory.id}] ({memory.type}, {since}{replaced}) {content}"


def numbered(memories: Sequence[Memory], policy: SafetyPolicy) -> str:
    """Return the memories in numbered lines, from 1."""
    return "\n".join(memory_line(m, policy, label=n) for n, m in enumerate(memories, 1))


def in_full(exchange: Exchange, policy: SafetyPolicy, *, most_answer: int) -> str:
    """Return an exchange with the answer as it came, code included."""
    answered = _cut(_cleaned(exchange.answer, policy), most_answer)
    return _framed(exchange, user_text(exchange, policy), answered)


def defused(text: str) -> str:
    """Return the text unable to open or close our sections."""
    return _SECTION.sub("‹", text)


def _framed(exchange: Exchange, user: str, assistant: str) -> str:
    return (
        f'<exchange date="{_date(exchange)}">\n<user>\n{defused(user)}\n</user>\n'
        f"<assistant>\n{defused(assistant)}\n</assistant>\n</exchange>"
    )


def _date(exchange: Exchange) -> str:
    said = local_time(exchange.said_at, exchange.timezone)
    return f"{said:%Y-%m-%d %H:%M} {exchange.timezone}, {said:%A}"


def _cut(text: str, limit: int) -> str:
    """Return the text's beginning and end: people write what they want before or after a paste."""
    if len(text) <= limit:
        return text
    return f"{text[: limit * 2 // 3]}\n[… cut …]\n{text[-limit // 3 :]}"


def request_of(
    role: str, name: str, last: Exchange | Scope, schema: Mapping[str, Any] | None = None, **shown: str
) -> CompletionRequest:
    """Return the LLM call of a role: prompt `name`, and prompt `name`_input filled with what is `shown`, in
    the name and with the model of the last exchange, if it is about a session."""
    user, system = Template(prompt(f"{name}_input.v1")).substitute(shown), prompt(f"{name}.v1")
    if isinstance(last, Scope):
        return CompletionRequest(role, system, user, model="", scope=last, session_id="", schema=schema)
    return CompletionRequest(role, system, user, last.model, last.scope, last.session_id, schema)


# ---------------------------------------------------------------- the model's answer
MAX_READ = 200  # facts
_LONGEST_TAG, _MOST_NAMES = 64, 5
TAGS = frozenset(
    "identity family people pets health food work project tools travel home money dates education leisure"
    " style rules plans events".split()
)
_CONTENT_KEYS = ("content", "fact", "memory", "text", "statement", "value", "description", "summary")
_TYPE_KEYS = ("type", "category", "memory_type", "kind", "fact_type", "memoryType")
_CONFIDENCE_KEYS = ("confidence", "score", "certainty", "probability", "confidence_score")
_EVIDENCE_KEYS = ("evidence", "quote", "span", "source", "evidence_span", "source_text")
_LIST_KEYS = ("facts", "memories", "memory", "results", "result", "items", "data", "extracted_facts")
# A protocol's envelope around the facts; a value may be JSON in a string.
_ENVELOPES = tuple(
    "arguments parameters input function tool_calls tool_call response answer output json choices message"
    " content payload object value extraction".split()
)
_NOTHING = re.compile(
    r"\W*(?:none|null|nothing(?: (?:new|to (?:remember|extract|store)))?|no (?:new |relevant "
    r"|lasting )?(?:facts?|memories)(?: (?:found|to extract|were found))?|n/?a|empty|无|没有|没有"
    r"|没有(?:新的)?(?:事实|记忆)|nada|nichts|rien)\W*",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"^[^\S\n]*+(?:(?:[-*•]"
    r"|\d{1,2}[.)])\s*+)?[*_`\"']{0,3}(?P<key>[A-Za-z_]{4,16})[*_`\"']{0,3}\s?[:\uff1a][*_]{0,2}[^\S\n]*(?P<value>\S.*(?=\n)|\"[^\"\n]+\"(?=\Z))",
    re.MULTILINE,
)
_ELEMENT = re.compile(r"<(\w{3,16})>([^<>]*)</\1>")
# Remains of a notation, or half a character.
_GARBLED = re.compile(
    r"[\ud800-\udfff\ufffd\x00-\x08\x0e-\x1f]|\"\s*[:,]\s*\"|[\"']\s*:\s*[\[{\"']|\\u[0-9a-fA-F]{4}|```"
    r"|<\|\w+\|>"
    r"|'[}\]]*\Z|\A[\[{]|[{\[]\"|</?(?:think|fact|facts|content|type)>|\Aundefined\Z|\A\[object Object\]"
)
_JSON = json.JSONDecoder(strict=False)
_OPENING = re.compile(r"[\[{]")
_FULL_WIDTH = str.maketrans("\uff5b\uff5d\uff3b\uff3d\uff1a\uff0c\uff02", '{}[]:,"')
_MOST_VALUES, _DEPTH = 200, 40
_NONE = frozenset(("", "null", "none", "n/a", "-", "false"))
_WORDS = {
    **{"certain": 1.0, "stated": 0.95, "very high": 0.95, "high": 0.9, "medium": 0.6, "moderate": 0.6},
    **{"hedged": 0.5, "low": 0.3, "very low": 0.1},
}
_MAX_ANSWER_CHARS = 100_000
_LONGEST = 8_000  # characters of a fact; more than is shown of an exchange


class Unreadable(Exception):
    """The answer holds no readable facts. The message holds no content."""


def read_facts(answer: str) -> list[Candidate]:
    """Return the facts of the answer in order; those of an unknown type, or garbled, are dropped.

    An empty list is a valid answer ("nothing to remember"). Raises Unreadable.
    """
    text = without_thoughts(answer[:_MAX_ANSWER_CHARS])
    values = list(_values(text))
    elements = [fact for value in values for fact in _facts_in(value)]
    # [], {}, {"facts": []}, {"facts": null}: the model found nothing.
    is_empty = any(
        not value or (isinstance(value, dict) and any(key in value and not value[key] for key in _LIST_KEYS))
        for value in values
        if isinstance(value, dict | list)
    )
    if not elements and not is_empty and not _NOTHING.fullmatch(text):
        elements = _labelled(text)
        if not elements:
            raise Unreadable("no facts in a notation that is known")
    facts = [c for e in elements if (c := _candidate(e)) is not None]
    if elements and not facts and not any(_first_text(e, _TYPE_KEYS) for e in elements):
        raise Unreadable("no element has a type and a content")
    return facts[:MAX_READ]


def objects(answer: str) -> Iterator[dict[str, Any]]:
    """Yield the answer's objects, outermost first; none if it was cut off."""
    level: list[Any] = list(_values(without_thoughts(answer[:_MAX_ANSWER_CHARS]), may_be_cut=False))
    for _ in range(_DEPTH):
        yield from (value for value in level if isinstance(value, dict))
        inner = (v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list))
        level = [value for values in inner for value in values]


def chosen(given: object, memories: Sequence[Memory]) -> list[Memory]:
    """Return the memories that the model names by their numbers; [] if one of them does not exist."""
    listed = given if isinstance(given, list) else []
    picked = {n for n in listed if isinstance(n, int) and not isinstance(n, bool)}
    if len(picked) < len(listed) or not picked <= set(range(1, len(memories) + 1)):
        return []
    return [memories[n - 1] for n in sorted(picked)]


def _values(text: str, *, may_be_cut: bool = True) -> Iterator[Any]:
    """Yield the top-level JSON values of the text. A broken one includes all that follows it, up to its last
    closing bracket."""
    whole = _decoded(text.strip())
    if whole is not None:
        yield whole
        return
    text, at = text.translate(_FULL_WIDTH), 0
    for _ in range(_MOST_VALUES):
        opening = _OPENING.search(text, at)
        if opening is None:
            return
        try:
            value, at = _JSON.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            import json_repair  # loaded with the first broken answer

            rest = text[opening.start() :]
            if may_be_cut or rest.count("{") <= rest.count("}"):
                whole = rest[: max(rest.rfind("}"), rest.rfind("]")) + 1]
                with suppress(ValueError, RecursionError):
                    yield json_repair.loads(whole, skip_json_loads=True)
            return
        yield value


def _decoded(text: str) -> Any:
    """Return the value of JSON that is encoded up to three times; None if the text is not JSON."""
    for _ in range(3):
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, str):
            return value
        text = value
    return None


def _facts_in(value: Any, depth: int = 0) -> list[Mapping[str, Any]]:
    if isinstance(value, str):
        value = _decoded(value)
    if depth > 6:
        return []
    if isinstance(value, list):
        elements = (element for element in value if isinstance(element, dict | list))
        return [fact for element in elements for fact in _facts_in(element, depth + 1)]
    if not isinstance(value, dict):
        return []
    if _content(value) and _first_text(value, _TYPE_KEYS):
        return [value]
    for key in (*_LIST_KEYS, *_ENVELOPES):
        inner = value.get(key)
        if isinstance(inner, list | dict | str) and (facts := _facts_in(inner, depth + 1)):
            return facts
    return _grouped(value, depth) or ([value] if _content(value) else [])


def _grouped(value: Mapping[str, Any], depth: int) -> list[Mapping[str, Any]]:
    """Return facts grouped by type ({"semantic": ["…"]}) or numbered ({"fact1": {…}})."""
    found: list[Mapping[str, Any]] = []
    for key, inner in value.items():
        type_ = _type_named(key)
        if type_ and isinstance(inner, list | str):
            texts = inner if isinstance(inner, list) else [inner]
            found += [{"type": type_, "content": t} for t in texts if isinstance(t, str)]
            found += [{"type": type_, **e} for e in texts if isinstance(e, dict)]
        elif isinstance(inner, dict):
            found += [{"type": type_, **inner}] if type_ and _content(inner) else _facts_in(inner, depth + 1)
    return found


def _labelled(text: str) -> list[Mapping[str, Any]]:
    """Return facts with "type: …" and "content: …" lines or XML elements. A last line without an end may be
    cut off, so it counts only in quotes."""
    lines = _ELEMENT.sub(r"\n\1: \2\n", text)
    found: list[dict[str, str]] = [{}]
    for match in _LABEL.finditer(lines):
        key, value = match["key"].lower(), match["value"].strip().strip("*`\"',")
        if key in found[-1]:
            found.append({})
        found[-1][key] = value
    return [e for e in found if _content(e) and _type_named(_first_text(e, _TYPE_KEYS))]


# ---------------------------------------------------------------- one fact
def _candidate(element: Mapping[str, Any]) -> Candidate | None:
    content, type_ = _content(element), _type_named(_first_text(element, _TYPE_KEYS))
    if not content or len(content) > _LONGEST or type_ is None or _GARBLED.search(content):
        return None
    evidence = _first_text(element, _EVIDENCE_KEYS)[:_LONGEST]
    tags, old = element.get("tags"), element.get("replaces")
    given = re.split(r"[,;\s]+", tags) if isinstance(tags, str) else tags if isinstance(tags, list) else []
    known = [tag for t in given if isinstance(t, str) and (tag := t.strip().lower()) in TAGS]
    if isinstance(old, list) and len(old) == 1:
        old = old[0]
    old = old.strip() if isinstance(old, str) else ""
    return Candidate(
        type=type_,
        content=content,
        confidence=_confidence(element),
        tags=(*[*dict.fromkeys(known)][:3], *_names(element.get("names"), f"{content} {evidence}")),
        evidence="" if _GARBLED.search(evidence) else evidence,
        replaces=old.strip("#[]<>\"'") if old.lower() not in _NONE else None,
    )


def _type_named(name: str) -> str | None:
    """Return the known type that is named, in any case, plural or as "semantic memory"."""
    bare = re.sub(r"[\s_-]?(?:memory|memories|facts?|type)\Z", "", name.strip().lower()).removesuffix("s")
    return bare if bare in STATED_KINDS else None


def _content(element: Mapping[str, Any]) -> str:
    return " ".join(_first_text(element, _CONTENT_KEYS).split())


def _first_text(element: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((v.strip() for k in keys if isinstance(v := element.get(k), str) and v.strip()), "")


def _names(given: Any, stated: str) -> tuple[str, ...]:
    """Return at most five tags such as "person:Anna Weber=Annie": names that the fact has or quotes."""
    held, found = key_of(stated), []
    for item in given if isinstance(given, list) else []:
        kind, colon, rest = item.partition(":") if isinstance(item, str) else ("", "", "")
        called = [" ".join(name.split()) for name in rest.split("=")]
        called = [name for name in called if key_of(name) and key_of(name) in held]
        if colon and kind.strip().lower() in NAME_KINDS and called:
            found.append(f"{kind.strip().lower()}:{'='.join(called)}")
    return tuple(tag for tag in dict.fromkeys(found) if len(tag) <= _LONGEST_TAG)[:_MOST_NAMES]


def _confidence(element: Mapping[str, Any]) -> float:
    """Return the confidence in [0, 1]: 0.9, "0.9", "9/10", "90%", 9, 90 or a word; .8 without one."""
    given = next((element[k] for k in _CONFIDENCE_KEYS if element.get(k) is not None), 0.8)
    if isinstance(given, str):
        word = given.strip().lower()
        match = re.match(r"(\d+(?:[.,]\d+)?)\s*(%|/\s*10\b)?", word)
        if match is None:
            return _WORDS.get(word, 0.8)
        given = float(match[1].replace(",", "."))
        if match[2]:
            return min(1.0, given / (100 if match[2] == "%" else 10))
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        return 0.8
    if given > 1.5:
        given = min(given, 100) / (10 if given <= 10 else 100)  # of ten, or in percent
    return float(min(1, max(0, given)))  # a float only now: it does not hold every integer
