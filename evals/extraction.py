"""Extraction: the conversations replayed through chat completions, and what is remembered of them.

Three replays with a good extraction model: as it happened, while two more clients say the same for one
other user at once; the whole transcript again; and for a third user with the sessions in reverse order.
Two with a sloppy model. Time advances from session to session, as it did for the persona.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.data import Message, Persona, Session
from evals.house import House, opened
from evals.judge import Judge, StoredMemory, Verdict
from evals.leaks import Leak, find
from evals.model import Extractor, Good, Model, Shown, Unlinked, conversation_of, flat, replies_of, sloppy
from evals.retrieval import MODEL, Refused, Tick, memories
from evals.score import Shares, Tally

SETTINGS = {
    "memory.extraction_batch_size": 5,
    "memory.personal_idle_seconds": 0.1,
    "memory.idle_seconds": 0.1,
    "memory.deadline_ms": 5000,
    "storage.exchange_ttl_days": 3650,  # months pass in seconds here; what is sent again is known as such
}
SETTLE_S = 3.0  # for a turn to come to extraction; then it counts as never extracted
SAME_TIME, REVERSED = "twice", "reversed"
EXTRACTORS: dict[str, Callable[[Sequence[Persona]], Extractor]] = {
    "good": Good,
    "unlinked": Unlinked,
    "sloppy": lambda _: sloppy,
}


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay changed against the first run, over all users. Memories by the ids of the gold facts
    that they state, or by their own."""

    before: int  # memories of the first run
    added: tuple[str, ...]  # memories that only the replay has
    lost: tuple[str, ...]  # memories that only the first run has
    doubled: tuple[str, ...]  # memories with the same content as another


@dataclass(slots=True)
class Report:
    """What one extraction model's run came to."""

    model: str
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # by user
    replays: dict[str, Replay] = field(default_factory=dict)  # by kind of replay
    leaks: list[Leak] = field(default_factory=list)
    unseen_turns: list[str] = field(default_factory=list)  # user turns that no extraction prompt showed
    exchanges: int = 0


async def run(
    name: str,
    personas: Sequence[Persona],
    directory: Path,
    judge: Judge,
    tick: Tick,
    *,
    all_replays: bool,
) -> Report:
    """Run all replays with one extraction model of EXTRACTORS. Raises Refused, DidNotStart."""
    model = Model(replies_of(personas), EXTRACTORS[name](personas))
    report = Report(name)
    async with opened(directory, model, SETTINGS) as house:
        theatre = _Theatre(house, report, tick)
        copies = [SAME_TIME] if all_replays else []
        await theatre.play(_in_order(personas), copies)
        first = {p.user: await theatre.current(p.user) for p in personas}
        for persona in personas:
            report.verdicts[persona.user] = await judge.verdict(persona, first[persona.user])
        for copy in copies:
            report.replays["two clients at once"] = await theatre.compare(personas, first, f"-{copy}")
        await theatre.play(_in_order(personas), [], again=True)
        report.replays["the same again"] = await theatre.compare(personas, first, "")
        if all_replays:
            backwards = _in_order(personas)[::-1]
            await theatre.play(backwards, [], suffix=f"-{REVERSED}")
            report.replays["sessions in reverse"] = await theatre.compare(personas, first, f"-{REVERSED}")
        users = [p.user + s for p in personas for s in ("", f"-{SAME_TIME}", f"-{REVERSED}")]
        stored = {u: [m async for m in memories(house, u, inactive=True)] for u in users}
    report.leaks = find(personas, stored, model.prompts, house.data_dir)
    return report


def _in_order(personas: Sequence[Persona]) -> list[tuple[Persona, Session]]:
    return sorted(((p, s) for p in personas for s in p.sessions), key=lambda pair: pair[1].at)


class _Theatre:
    """Plays sessions to a proxy and waits until they are extracted."""

    def __init__(self, house: House, report: Report, tick: Tick) -> None:
        self._house, self._report, self._tick = house, report, tick

    async def play(
        self,
        scenes: Sequence[tuple[Persona, Session]],
        copies: Sequence[str],
        *,
        suffix: str = "",
        again: bool = False,
    ) -> None:
        """Play the sessions one after the other; for each copy, two more clients play it at once. `again`:
        time does not advance, and no memory should change."""
        for persona, session in scenes:
            if not again:
                self._house.clock.set(session.at)
            user = persona.user + suffix
            plays = [self._replay(user, session)]
            plays += [self._replay(f"{persona.user}-{c}", session) for c in copies for _ in range(2)]
            before = len(self._house.model.prompts)
            await asyncio.gather(*plays)
            users = [user, *(f"{persona.user}-{c}" for c in copies)]
            await self._settle(users, session, before, again=again)
            self._tick(session.id)

    async def _replay(self, user: str, session: Session) -> None:
        """Say what the user said, turn by turn, with the history that a chat client sends along."""
        for index, turn in enumerate(session.turns):
            if turn.role == "user":
                await self._say(user, session, session.turns[: index + 1])
                self._report.exchanges += 1

    async def _say(self, user: str, session: Session, so_far: Sequence[Message]) -> None:
        context = {"user_id": user, "session_id": session.id}
        if session.project:
            context["project_id"] = session.project
        body = {
            "model": MODEL,
            "messages": [m.as_json() for m in so_far],
            "memory_context": context,
        }
        reply = await self._house.call("POST", "/v1/chat/completions", body, authorization="Bearer sk-eval")
        if reply.status != 200:
            raise Refused(f"{session.id}: {reply.status} {reply.body}")

    async def _settle(self, users: Sequence[str], session: Session, before: int, *, again: bool) -> None:
        """Wait until every user turn of the session came to an extraction, and the queue is empty."""
        for user in users:
            await self._end(user, session)
        turns = {t.id: Shown.of(t) for t in session.turns if t.role == "user"}
        if not again:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    await self._until_seen(turns, before, len(users))
            self._report.unseen_turns += self._unseen(turns, before, 1)
        await self._house.idle()

    async def _until_seen(self, turns: Mapping[str, Shown], before: int, times: int) -> None:
        prompted = self._house.model.prompted
        while self._unseen(turns, before, times):
            prompted.clear()
            await prompted.wait()

    def _unseen(self, turns: Mapping[str, Shown], before: int, times: int) -> list[str]:
        """Return the ids of the turns that occur in fewer than `times` prompts since `before`."""
        said = [flat(conversation_of(p)) for p in self._house.model.prompts[before:]]
        return [i for i, t in turns.items() if sum(t.shows_in(text) for text in said) < times]

    async def _end(self, user: str, session: Session) -> None:
        await self._house.call("POST", f"/v1/memory/sessions/{session.id}/end?user_id={user}")

    async def current(self, user: str) -> list[StoredMemory]:
        """Return the user's current memories."""
        return [_stored_memory(m) async for m in memories(self._house, user)]

    async def compare(
        self, personas: Sequence[Persona], first: dict[str, list[StoredMemory]], suffix: str
    ) -> Replay:
        """Return how the memories of the users with this suffix differ from those of the first run."""
        before = 0
        added, lost, doubled = list[str](), list[str](), list[str]()
        for persona in personas:
            names = {flat(f.content): f.id for _, f in persona.facts()}
            old = {flat(k.content): k.id for k in first[persona.user]}
            current = await self.current(persona.user + suffix)
            new = {flat(k.content): k.id for k in current}
            before += len(first[persona.user])
            added += [names.get(c, i) for c, i in new.items() if c not in old]
            lost += [names.get(c, i) for c, i in old.items() if c not in new]
            doubled += [k.id for k in current if new[flat(k.content)] != k.id]
        return Replay(before, tuple(added), tuple(lost), tuple(doubled))


def _stored_memory(memory: dict[str, Any]) -> StoredMemory:
    return StoredMemory(memory["id"], memory["content"])


def shares(reports: Sequence[Report], personas: Sequence[Persona]) -> Shares:
    """Return the metrics of the reports, by extraction model and language of the persona."""
    found = Tally()
    languages = {persona.user: persona.language for persona in personas}
    for report in reports:
        for user, verdict in report.verdicts.items():
            _count(found, report.model, languages[user], verdict)
        for leak in report.leaks:
            language = languages[leak.evidence.rpartition("-s")[0]]
            found.add(f"forbidden: {leak.reason}, {report.model} model", language, leak.is_bad)
        for name, replay in report.replays.items():
            found.add(
                f"added by a replay: {name}, {report.model} model",
                "all users",
                len(replay.added) / replay.before,
            )
        unseen = len(report.unseen_turns) / (report.exchanges or 1)
        found.add(f"unseen turns: {report.model} model", "all users", unseen)
    return found.shares()


def _count(found: Tally, model: str, language: str, verdict: Verdict) -> None:
    for fact in (*verdict.found, *verdict.missing):
        found.add(f"recall: {model} model", language, fact in verdict.found)
        found.add(f"recall in own words: {model} model", language, fact in verdict.covered)
    wrong = verdict.extra + len(verdict.stale)
    for place in range(verdict.stored):
        found.add(f"precision: {model} model", language, place >= wrong)
        found.add(f"precision in own words: {model} model", language, place < verdict.useful)
    for name, ids in (("stale", verdict.stale), ("doubled", verdict.doubled)):
        found.add(f"{name}: {model} model", language, len(ids) / (verdict.stored or 1))
