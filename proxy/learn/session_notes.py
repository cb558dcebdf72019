"""Notes on a session: the state of a long one, the summary at its end.

A state replaces turns that are no longer shown (see http/turns); `state_covers` says which it may
replace. It is updated after a job; if that fails, the old state stays.

A summary becomes an episodic memory like any other, through the gate. It is the only candidate of a job of
its own, which runs after the session's facts are stored. A model that does not know the task answers with
anything, and a lazy one with nothing in many words: neither passes.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.admit.safety import DEFAULT, REDACTED, REMOVED, SafetyPolicy, clean, reject
from proxy.domain.core import Candidate, Evidence
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Completer, CompletionRequest, Judge
from proxy.domain.session import Batch, Exchange, Job, NoteStore
from proxy.learn.llm_io import assistant_text, conversation, defused, in_full, objects, request_of, user_text
from proxy.learn.recorder import YES
from proxy.telemetry import log
from proxy.text.dates import local_time
from proxy.text.words import fold, terms, without_inner_stops

# ---------------------------------------------------------------- state
STATE_ROLE = "memory_state"
# In the order in which they are shown, and in which they are cut if the answer is too long.
TOPIC = "topic"
LISTS = ("goals", "decisions", "facts", "constraints", "preferences_now", "open_points", "files_or_ids")
State = dict[str, str | list[str]]

MAX_SAID = 6_000  # characters; more is a paste that no state can replace
_MAX_ANSWER, _MAX_TOTAL = 6_000, 40_000
_MAX_STATE_ITEMS, _MAX_STATE_ITEM = 8, 240  # of a field, characters of an item
_MAX_BYTES = 1_200  # of a state: some 300 tokens
_STATE_SUPPORT = 0.5  # share of an item's words that were said; a state is reworded more freely than a fact
# Half of an emoji cannot be stored; what stood for something removed says nothing.
_UNFIT = re.compile(f"[\ud800-\udfff\ufffd]|{re.escape(REMOVED)}|{re.escape(REDACTED)}")


def state_request(
    previous: Mapping[str, Any] | None, exchanges: Sequence[Exchange], policy: SafetyPolicy = DEFAULT
) -> CompletionRequest:
    """Return the LLM call that updates the state with the exchanges, of which `first_portion` fit."""
    state = defused(json.dumps(previous, ensure_ascii=False) if previous else "(none yet)")
    shown = _shown(exchanges, policy)
    return request_of(STATE_ROLE, "state", exchanges[-1], state=state, exchanges=shown)


def first_portion(exchanges: Sequence[Exchange]) -> Sequence[Exchange]:
    """Return as many of the first exchanges as fit one call, at least one."""
    total = 0
    for count, exchange in enumerate(exchanges):
        total += min(len(exchange.said), MAX_SAID) + min(len(exchange.answer), _MAX_ANSWER)
        if count and total > _MAX_TOTAL:
            return exchanges[:count]
    return exchanges


def state_covers(exchange: Exchange, *, is_rule: bool) -> bool:
    """True if a state made from the exchange may replace it: the user's words were read completely, and the
    exchange was answered. Not so a long paste, or words from which a secret or a planted instruction was
    removed. A rule for the rest of the conversation (`is_rule`) has the user's authority only in the user's
    own message, so its turn is shown. Of a long answer the state has read the beginning and the end."""
    said = exchange.said
    if not exchange.answer.strip() or len(said) > MAX_SAID or REDACTED in said:
        return False
    return clean(said) == said and not is_rule


def read_state(answer: str, policy: SafetyPolicy = DEFAULT) -> State | None:
    """Return the answer's state, None if it holds none: known keys only, items that may be stored, at most
    some 300 tokens."""
    return next((state for found in objects(answer) if (state := _bounded(found, policy))), None)


def grounded_state(
    state: State,
    previous: Mapping[str, Any] | None,
    exchanges: Sequence[Exchange],
    policy: SafetyPolicy = DEFAULT,
) -> State | None:
    """Return the state without items that neither the previous one nor the exchanges say, None if nothing is
    left: it would replace turns that it does not know."""
    known = json.dumps(previous or {}, ensure_ascii=False)
    said = frozenset(terms(known + "\n" + _shown(exchanges, policy)))
    given = {key: [value] if isinstance(value, str) else value for key, value in state.items()}

    def is_said(item: str) -> bool:
        words = frozenset(terms(item))
        return len(words & said) >= _STATE_SUPPORT * len(words)

    found = {key: [*filter(is_said, items)] for key, items in given.items()}
    return {key: items[0] if key == TOPIC else items for key, items in found.items() if items} or None


def _shown(exchanges: Sequence[Exchange], policy: SafetyPolicy) -> str:
    return "\n".join(in_full(exchange, policy, most_answer=_MAX_ANSWER) for exchange in exchanges)


def _bounded(value: Mapping[str, Any], policy: SafetyPolicy) -> State:
    """Return the object's known fields, {} without any; fields take turns while there is room."""
    topic = next(iter(_state_items(value.get(TOPIC), policy)), "")
    wanted = {key: _state_items(value.get(key), policy) for key in LISTS}
    left = _MAX_BYTES - len(topic.encode())
    lists: dict[str, list[str]] = {key: [] for key in LISTS}
    for rank in range(_MAX_STATE_ITEMS):
        for key, items in wanted.items():
            if rank < len(items) and (size := len(items[rank].encode())) <= left:
                lists[key].append(items[rank])
                left -= size
    state: State = {TOPIC: topic} if topic else {}
    return state | {key: items for key, items in lists.items() if items}


def _state_items(value: Any, policy: SafetyPolicy) -> list[str]:
    """Return the texts of a field, given as a list, one text or an object."""
    if isinstance(value, dict):
        value = [f"{key}: {item}" for key, item in value.items() if _is_plain(item)]
    given = value if isinstance(value, list) else [value]
    texts = dict.fromkeys(" ".join(str(item).split()) for item in given if _is_plain(item))
    short = (text for text in texts if any(map(str.isalnum, text)) and len(text) <= _MAX_STATE_ITEM)
    fit = (text for text in short if not _UNFIT.search(text) and clean(text, policy) == text)
    return [*fit][:_MAX_STATE_ITEMS]


def _is_plain(item: Any) -> bool:
    return isinstance(item, str | int | float) and not isinstance(item, bool)


# ---------------------------------------------------------------- summary
SUMMARY_ROLE = "memory_summary"
MAX_SUMMARY = 600  # characters
_MAX_CONTENT = 780  # with actions and outcomes: what a memory may hold
_MOST_TOPICS, _MOST_ITEMS, _MAX_SUMMARY_ITEM = 5, 4, 120
_SUMMARY_SUPPORT = 0.5  # share of the summary's terms that must be in the session: the rest is narration
_SAYS, _SUBSTANCE = 2, 6  # terms of an exchange that says something ("My budget is $3,000"), of all exchanges
_FEWEST_SHARED = 4  # terms of the session that a summary must hold
_CONFIDENCE = 0.8
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<![.!?:;\"“(]\s)(?<=[\w,]\s)[A-Z][\w'’-]+")


def has_substance(exchanges: Sequence[Exchange]) -> bool:
    """True if at least two exchanges say something, and all of them enough to be summarised."""
    said = [frozenset(terms(e.said)) for e in exchanges if e.answer.strip()]
    saying = [found for found in said if len(found) >= _SAYS]
    return len(saying) >= 2 and len(frozenset().union(*saying)) >= _SUBSTANCE


def summary_request(exchanges: Sequence[Exchange], policy: SafetyPolicy = DEFAULT) -> CompletionRequest:
    """Return the LLM call that summarises the session's exchanges."""
    shown = conversation(exchanges, policy)
    return request_of(SUMMARY_ROLE, "summary", exchanges[-1], exchanges=shown)


def read_summary(
    answer: str, exchanges: Sequence[Exchange], before: str | None, policy: SafetyPolicy = DEFAULT
) -> Candidate | None:
    """Return the answer's summary, which replaces the one with the id `before`; None for a poor one: without
    content, too long, or with names, numbers and things that are not in the session."""
    fields = next((found for found in objects(answer) if isinstance(found.get("summary"), str)), None)
    if fields is None:
        return None
    summary = " ".join(fields["summary"].split())
    session = _SessionTerms(exchanges, policy)
    if len(summary) > MAX_SUMMARY or not session.supports(summary):
        return None
    content, last, importance = summary, exchanges[-1], fields.get("importance")
    if isinstance(importance, bool) or not isinstance(importance, int | float) or importance != importance:
        importance = 0.5
    for label, key in (("Done", "actions"), ("Outcome", "outcomes")):
        items = list(filter(session.mentions, _summary_items(fields.get(key), _MOST_ITEMS)))
        addition = f" {label}: {'; '.join(items)}." if items else ""
        content += addition if len(content) + len(addition) <= _MAX_CONTENT else ""
    topics = filter(session.mentions, _summary_items(fields.get("topics"), _MOST_TOPICS))
    candidate = Candidate(
        type="episodic",
        content=content,
        confidence=_CONFIDENCE,
        tags=tuple(topic[:40] for topic in topics),
        replaces=before,
        source="summary",
        importance=min(1.0, max(0.0, importance)),
        observed_at=last.said_at,
        timezone=last.timezone,
        origin=Evidence(last.session_id, last.id),
    )
    return None if reject(candidate, policy) else candidate


def _summary_items(value: Any, most: int) -> list[str]:
    given = value if isinstance(value, list) else [value]
    texts = (" ".join(item.split()).rstrip(" .;") for item in given if isinstance(item, str))
    return [text for text in dict.fromkeys(texts) if 0 < len(text) <= _MAX_SUMMARY_ITEM][:most]


class _SessionTerms:
    """The session's words, to compare a summary with."""

    def __init__(self, exchanges: Sequence[Exchange], policy: SafetyPolicy) -> None:
        text = "\n".join(
            # With the date: "tomorrow" becomes one in a summary.
            f"{user_text(e, policy)}\n{assistant_text(e, policy)}\n"
            f"{local_time(e.said_at, e.timezone):%Y-%m-%d %Y %B %d %A}"
            for e in exchanges
        )
        self._text, self._terms = fold(text).replace(",", ""), frozenset(terms(text))

    def supports(self, text: str) -> bool:
        """True if the text has enough of the session's terms, and mostly those."""
        return len(frozenset(terms(text)) & self._terms) >= _FEWEST_SHARED and self.mentions(text)

    def mentions(self, text: str) -> bool:
        """True if most terms of the text are in the session, and all its names and numbers."""
        words = frozenset(terms(text))
        if not words or len(words & self._terms) < _SUMMARY_SUPPORT * len(words):
            return False
        given = (*_NUMBER.findall(text), *_NAME.findall(without_inner_stops(text)))
        return all(fold(name).replace(",", "") in self._text for name in given)


# ---------------------------------------------------------------- the worker's hooks
_MOST = 60  # exchanges that are summarised: the last ones of a session
_READ_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class NoteWriter:
    """The worker's hooks for whole sessions. `mark`: recall.history.mark."""

    notes: NoteStore
    completer: Completer
    mark: Callable[[str, str], str]
    policy: SafetyPolicy = DEFAULT
    step_turns: int = 5
    summaries: bool = True
    idle_seconds: float = 600
    judge: Judge | None = None  # None: a state replaces no turn, since each may set a rule
    left_seconds: float = 60  # of silence after which a session is over if its user has begun another

    async def close(self, now: float) -> int:
        """Queue summaries of sessions that have ended; return how many."""
        if not self.summaries:
            return 0
        idle_since, left_since = now - self.idle_seconds, now - self.left_seconds
        return await self.notes.close(idle_since=idle_since, left_since=left_since, now=now)

    async def close_all(self, now: float) -> int:
        """Queue summaries of all sessions, as the process ends. One that continues is summarised again."""
        return await self.notes.close(idle_since=now, left_since=now, now=now) if self.summaries else 0

    async def closing(self, job: Job, batch: Batch) -> Sequence[Candidate]:
        """Return the session's summary; () if it has not ended or says too little, or if the model's answers
        are poor twice. Raises CompletionFailed, StoreUnavailable."""
        if not (job.closing and self.summaries):
            return ()
        episode = await self.notes.episode(job, limit=_MOST)
        if episode is None or not has_substance(episode.exchanges):
            return ()
        request = await asyncio.to_thread(summary_request, episode.exchanges, self.policy)
        for attempt in (1, 2):
            answer = await self.completer.complete(request)
            found = await asyncio.to_thread(
                read_summary, answer, episode.exchanges, episode.before, self.policy
            )
            if found is not None:
                return (found,)
            log.info("memory.poor_summary", attempt=attempt)
        return ()

    async def refresh(self, job: Job, batch: Batch) -> None:
        """Update the session's state if it is used and enough was said since. Raises CompletionFailed,
        StoreUnavailable; the old state stays then."""
        while True:
            unread = await self.notes.unread(job.scope, job.session_id, limit=_READ_AT_ONCE)
            if unread is None or len(unread.exchanges) < self.step_turns:
                return
            now = first_portion(unread.exchanges)
            request = await asyncio.to_thread(state_request, unread.state, now, self.policy)
            answer = await self.completer.complete(request)
            found = await asyncio.to_thread(read_state, answer, self.policy)
            new = found and await asyncio.to_thread(grounded_state, found, unread.state, now, self.policy)
            if not new:
                log.info("memory.poor_state")
                return
            marks = [
                self.mark(key, exchange.answer)
                for key, exchange in zip(unread.keys, now, strict=False)
                if await self._covers(exchange)
            ]
            session = (job.scope, job.session_id)
            if not await self.notes.keep_state(*session, new, now[-1], marks, expect=unread.stamp):
                return

    async def _covers(self, exchange: Exchange) -> bool:
        """True if the new state replaces the exchange."""
        if self.judge is None or not exchange.whole:
            return False
        try:
            reading = await self.judge.read(exchange.said, closely=True)
        except EmbeddingFailed:
            return False
        return state_covers(exchange, is_rule=reading.asks.rule >= YES)
