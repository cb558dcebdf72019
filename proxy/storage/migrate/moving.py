"""Migrate data user by user, each in portions; every portion is one step that also records how far the user
has come.

A run that was killed is gone on with by the next. A user who has data of other origin in the target is never
touched: what tells is the note (`moved`), which names the directory that the data came from.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from proxy.domain.core import Scope, Stamp
from proxy.domain.errors import StoreUnavailable, WrongModel
from proxy.domain.ports import EmbeddingModel
from proxy.storage.migrate import shared, tally
from proxy.storage.migrate.pieces import Into, Piece, Pieces, Target, count_of
from proxy.storage.migrate.source import Refused, Source, User
from proxy.storage.migrate.tally import Tally
from proxy.storage.redis import model, purging
from proxy.storage.redis.erasing import erase_all
from proxy.storage.redis.indexing import Indexing
from proxy.storage.redis.layout import MovedRow
from proxy.storage.redis.rows import Rows
from proxy.storage.redis.unit import Unit, Units
from proxy.storage.vector_index import VectorIndex

TABLE, ROW = "moved", "from"
_PIECES, _BYTES = 200, 2_000_000  # of a portion: a commit holds up everybody whom Redis serves

Told = Callable[[str, int, int], None]
"""Is told what is being done, how much of it is done and how much there is."""


@dataclass(slots=True)
class Moved:
    """What a run has found, and done."""

    users: int = 0  # of the directory, without those left out
    before: int = 0  # of them, those that an earlier run has moved
    left_out: int = 0  # users who have other data in the target
    keys: int = 0
    model: str | None = None  # that made the vectors
    old: Tally = field(default_factory=Tally)
    new: Tally = field(default_factory=Tally)

    @property
    def differs(self) -> list[str]:
        """Return what is not the same on both sides."""
        counts = [name for name, count in self.old.counts.items() if self.new.counts[name] != count]
        digests = [n for n, d in self.old.digests.items() if self.new.digests[n] != d and n not in counts]
        return counts + digests


@dataclass(frozen=True, slots=True)
class _Found:
    """What the target has of a user."""

    is_new: bool  # it has nothing
    note: MovedRow | None
    stamp: Stamp


@dataclass(slots=True)
class _Plan:
    """What is to be done for one user."""

    user: User
    fingerprint: str
    note: MovedRow | None  # as it is in the target
    goes_on_from: MovedRow = field(init=False)

    @property
    def was_whole(self) -> bool:
        return self.note is not None and self.note["whole"]

    @property
    def is_same(self) -> bool:
        """True if the note is of what the directory has now."""
        return self.note is not None and self.note["fingerprint"] == self.fingerprint


class Move:
    """Moves what one directory holds into one target, with an index of vectors."""

    def __init__(self, source: Source, units: Units, index: VectorIndex, told: Told) -> None:
        self._source, self._units, self._redis, self._index = source, units, units.redis, index
        self._indexing, self._told = Indexing(units, index), told

    async def run(self, *, anew: bool = False, skip: bool = False) -> Moved:
        """Move everything, and compare. `anew`: erase what an earlier run has moved of users who have changed
        in the directory since; `skip`: leave out who has other data in the target.

        Raises Refused, WrongModel; StoreUnavailable in the middle leaves what the next run goes on with."""
        await shared.refuse_company(self._redis)
        plans, left_out = await self._plans(anew=anew, skip=skip)
        generations = await self._generations()
        jobs_after = await shared.job_numbers(self._redis, self._source)
        await shared.raise_ranks(self._redis, max((plan.user.served for plan in plans), default=0))
        moved = Moved(users=len(plans), left_out=left_out)
        moved.model = next((name for name, _ in reversed(self._source.models())), None)
        done, total = 0, sum(count_of(plan.user) for plan in plans)
        for plan in plans:
            moved.before += plan.was_whole and plan.is_same
            await self._clear(plan, jobs_after)
            done = await self._move(plan, generations, done, total)
        await shared.list_receipts(self._redis, self._source, {plan.user.scope for plan in plans})
        moved.keys = await shared.add_keys(self._units, self._source)
        for number, plan in enumerate(plans, 1):
            self._told("compare", number, len(plans))
            await self._compare(plan, generations, moved)
        return moved

    # ------------------------------------------------------------ looking first
    async def _plans(self, *, anew: bool, skip: bool) -> tuple[list[_Plan], int]:
        """Return what is to be done for whom, and how many users are left out."""
        plans: list[_Plan] = []
        others = changed = 0
        users = self._source.users()
        for number, user in enumerate(users, 1):
            self._told("look", number, len(users))
            found = await self._units.glance(user.scope, _find)
            plan = _Plan(user, self._source.fingerprint(user), found.note)
            if not found.is_new and (found.note is None or self._is_foreign(plan, found.note, found.stamp)):
                others += 1
                continue
            changed += plan.was_whole and not plan.is_same
            plans.append(plan)
        if others and not skip:
            raise Refused(
                f"{others:,} of {len(users):,} users have other data in the target, which this would not"
                " overwrite: give --skip-others to move the rest"
            )
        if changed and not anew:
            raise Refused(
                f"{changed:,} users have changed in the directory since an earlier run moved them: give"
                " --anew to erase what that run has moved of them, with what came since, and move them again"
            )
        return plans, others

    def _is_foreign(self, plan: _Plan, note: MovedRow, stamp: Stamp) -> bool:
        """True of what came from elsewhere, and where a move would bring back what was forgotten since."""
        if note["source"] != self._source.token:
            return True
        is_done = note["whole"] and plan.is_same
        return not is_done and note["pieces"] > 0 and stamp.generation != note["generation"]

    async def _generations(self) -> dict[int, int]:
        """Let the target have the source's embedding models; return how it calls their generations."""
        ours, theirs = self._source.models(), await model.models(self._redis)
        if ours and theirs and theirs[-1] != ours[-1]:
            if await self._redis.call("EXISTS", self._redis.key("embedded")):
                raise WrongModel(
                    f"the directory's vectors were made with {ours[-1][0]} ({ours[-1][1]} dimensions), the"
                    f" target's with {theirs[-1][0]} ({theirs[-1][1]}): run `memory-proxy reembed` on one of"
                    " them first"
                )
            await model.begin(self._redis, EmbeddingModel(*ours[-1], 0.0, 0.0))
        for name, dimension in ours if not theirs else ():
            await model.begin(self._redis, EmbeddingModel(name, dimension, 0.0, 0.0))
        theirs = await model.models(self._redis)
        places = {named: generation for generation, named in enumerate(theirs)}
        return {old: places[named] for old, named in enumerate(ours) if named in places}

    # ------------------------------------------------------------ moving
    async def _clear(self, plan: _Plan, jobs_after: int) -> None:
        """Have nothing in the target that another state of the directory has left of the user."""
        before, empty = plan.note, self._empty(plan, jobs_after)
        if before is None or plan.is_same:
            plan.goes_on_from = before or empty
            return
        scope = plan.user.scope
        await self._units.write(scope, partial(_erase, before=before, after=empty))
        plan.note = plan.goes_on_from = empty
        await self._settle(scope)

    async def _move(self, plan: _Plan, generations: Mapping[int, int], done: int, total: int) -> int:
        """Move what is not there yet of one user; return how many pieces are done in all."""
        self._told("move", done, total)
        note, whole = plan.goes_on_from, count_of(plan.user)
        if note["whole"]:
            return done + whole
        pieces = Pieces(self._source, plan.user, Target(note["jobs_after"], generations))
        for portion in _portions(pieces, note["pieces"]):
            at = plan.goes_on_from["pieces"] + len(portion)
            after: MovedRow = {**note, "pieces": at, "whole": at == whole}
            write = partial(_write, plan=plan, pieces=pieces, portion=portion, after=after)
            await self._units.write(plan.user.scope, write)
            plan.note = plan.goes_on_from = after
            await self._settle(plan.user.scope)
            self._told("move", done + at, total)
        return done + whole

    async def _settle(self, scope: Scope) -> None:
        """Have the vectors in the index, and no longer beside the rows."""
        if not await self._indexing.settle(scope):
            raise StoreUnavailable("the index of vectors cannot be reached")

    def _empty(self, plan: _Plan, jobs_after: int) -> MovedRow:
        return {
            "source": self._source.token, "fingerprint": plan.fingerprint,
            "generation": plan.user.generation, "jobs_after": jobs_after, "pieces": 0, "whole": False,
            "found": None,
        }  # fmt: skip

    # ------------------------------------------------------------ comparing
    async def _compare(self, plan: _Plan, generations: Mapping[int, int], moved: Moved) -> None:
        """Compare the two sides, once: after that the user's data may go on."""
        assert plan.note is not None
        old = tally.of_source(self._source, plan.user, generations)
        if plan.note["found"] is not None:
            new = Tally.of_row(plan.note["found"])
        else:
            new = await tally.of_target(self._units, self._index, plan.user)
            if new == old:
                noted: MovedRow = {**plan.note, "found": new.as_row()}
                await self._units.write(plan.user.scope, partial(_note, before=plan.note, after=noted))
        moved.old.add(old)
        moved.new.add(new)


def _portions(pieces: Pieces, start: int) -> Iterator[Sequence[Piece]]:
    """Yield the pieces from a place on, as many at a time as a commit may hold."""
    portion, size = list[Piece](), 0
    for number, piece in enumerate(pieces):
        if number < start:
            continue
        if portion and (len(portion) == _PIECES or size + piece.size > _BYTES):
            yield portion
            portion, size = [], 0
        portion.append(piece)
        size += piece.size
    if portion:
        yield portion


async def _write(
    unit: Unit, *, plan: _Plan, pieces: Pieces, portion: Sequence[Piece], after: MovedRow
) -> None:
    """Write one portion, and note it. Raises Refused if anybody else has touched what is under way."""
    await _take(unit, plan.note, after)
    user = plan.user
    if not plan.goes_on_from["pieces"]:
        unit.table("obsolete").clear()  # what is moved again is not to leave the index
        numbers = {"generation": user.generation, "version": user.version, "served": user.served}
        for name, number in {**numbers, "last": pieces.numbers.last}.items():
            unit.set_number(name, number)
        if user.timezone is not None:
            unit.table("user").put("timezone", user.timezone)
        unit.set_number("session", pieces.numbers.last_of("sessions"))
    into = Into(unit, Rows(unit))
    memories = [piece.memory for piece in portion if piece.memory is not None]
    await into.rows.fetch([memory.id for memory in memories], memories)
    for piece in portion:
        await piece.put(into)


async def _erase(unit: Unit, *, before: MovedRow, after: MovedRow) -> None:
    """Erase all of the user but receipts, which the directory has, too."""
    await _take(unit, before, after)
    await erase_all(unit, at=0.0)
    purging.ask(unit)
    unit.table(TABLE).put(ROW, after)


async def _note(unit: Unit, *, before: MovedRow, after: MovedRow) -> None:
    await _take(unit, before, after)


async def _take(unit: Unit, before: MovedRow | None, after: MovedRow) -> None:
    found = await _find(unit)
    if found.note != before or (found.note is None and not found.is_new):
        raise Refused("somebody else writes to the target's users: stop every replica, and run it again")
    unit.table(TABLE).put(ROW, after)


async def _find(unit: Unit) -> _Found:
    return _Found(unit.is_new, await unit.table(TABLE).get(ROW), unit.stamp)
