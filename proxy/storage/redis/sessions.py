"""The SessionStore over Redis: see ports.SessionStore for what every method guarantees."""

from collections.abc import Sequence

from proxy.domain.core import Begun, Exchange, NewExchange, Outcome, Scope
from proxy.domain.oversight import SessionInfo
from proxy.domain.ports import Trigger
from proxy.storage.redis import exchanges, overview, retention, sweeping
from proxy.storage.redis.exchanges import OursBegun
from proxy.storage.redis.instance import Instance
from proxy.storage.redis.layout import storable
from proxy.storage.redis.unit import Unit, Units


class RedisSessions:
    """Exchanges of all replicas."""

    def __init__(self, units: Units, instance: Instance) -> None:
        self._units, self._instance = units, instance
        self._sweep = sweeping.Sweep(units, instance)

    async def begin(self, exchange: NewExchange) -> Begun:
        async def work(unit: Unit) -> Begun:
            return await exchanges.begin(unit, exchange, self._instance.id)

        return await self._units.write(exchange.scope, work)

    async def resume(
        self, scope: Scope, session_id: str, key: str | None, response_id: str | None = None
    ) -> Begun | None:
        async def work(unit: Unit) -> Begun | None:
            return await exchanges.resume(unit, scope, session_id, key, response_id)

        return await self._units.read(scope, work)

    async def timezone(self, scope: Scope) -> str | None:
        return await self._units.glance(scope, exchanges.timezone)

    async def complete(self, begun: Begun, outcome: Outcome, trigger: Trigger) -> bool:
        """As the port says; `trigger` may be asked more than once, the last time counts."""

        async def work(unit: Unit) -> bool:
            return await exchanges.complete(unit, begun, outcome, trigger)

        return await self._units.write(_owner(begun), work)

    async def abort(self, begun: Begun) -> None:
        async def work(unit: Unit) -> None:
            await exchanges.abort(unit, begun)

        await self._units.write(_owner(begun), work)

    async def recent(self, scope: Scope, session_id: str, limit: int) -> list[Exchange]:
        async def work(unit: Unit) -> list[Exchange]:
            return await exchanges.last(unit, scope, session_id, limit)

        return await self._units.read(scope, work)

    async def session_of(self, scope: Scope, response_id: str) -> str | None:
        async def work(unit: Unit) -> str | None:
            return await overview.session_of(unit, storable(response_id))

        return await self._units.read(scope, work)

    async def sweep(self, now: float, trigger: Trigger) -> int:
        """As the port says. Of several replicas one sweeps at a time; who waits for its turn in vain leaves
        it to the other, and returns 0. `trigger` may be asked more than once."""
        return await self._sweep(now, trigger)

    async def end(self, scope: Scope, session_id: str, at: float) -> int:
        async def work(unit: Unit) -> int:
            return await sweeping.end(unit, self._instance, scope, session_id, at)

        return await self._units.write(scope, work)

    async def sessions(self, scope: Scope, *, limit: int, after: str | None = None) -> Sequence[SessionInfo]:
        async def work(unit: Unit) -> Sequence[SessionInfo]:
            return await overview.sessions(unit, scope, limit, after)

        return await self._units.read(scope, work)

    async def prune(self, before: float) -> int:
        """Delete the exchanges from before `before` that are extracted, and the sessions last used before
        it that are empty now. Returns the number of exchanges."""
        return await retention.prune(self._units, before)


def _owner(begun: Begun) -> Scope:
    assert isinstance(begun, OursBegun), "not begun here"
    return begun.scope
