"""One process's connections to Redis: commands, and the script that commits a unit."""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis as Client
from redis.exceptions import NoScriptError, RedisError

from proxy import observe
from proxy.errors import StoreUnavailable

Argument = str | bytes | int | float
Command = Sequence[Argument]

KNOWN_S = 60  # how long a commit can be asked whether it happened
_ASK_S = 0.2
_ASKS = 5
# Commands come with their lengths before them; all of them are applied, or none.
_COMMIT = """
local revision = tonumber(redis.call('HGET', KEYS[1], 'revision') or '0')
if revision ~= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[2], '1', 'EX', ARGV[2])
redis.call('HSET', KEYS[1], 'revision', revision + 1)
local at = 3
while at <= #ARGV do
    local length = tonumber(ARGV[at])
    redis.call(unpack(ARGV, at + 1, at + length))
    at = at + length + 1
end
return 1
"""


class Redis:
    """Commands to one Redis. All of them raise StoreUnavailable when it cannot be reached, and whatever comes
    after finds it again by itself, also under another primary."""

    def __init__(self, client: Client, *, prefix: str, replicas: int = 0, replica_wait_ms: int = 100) -> None:
        """`replicas`: how many must have a commit before it counts as done."""
        self._client: Any = client  # its commands have no types
        self.prefix = prefix
        self._replicas, self._replica_wait_ms = replicas, replica_wait_ms
        self._script = ""

    def key(self, name: str) -> str:
        """Return the key of something that all users share."""
        return self.prefix + name

    async def call(self, *command: Argument) -> Any:
        """Return the answer to one command."""
        try:
            return await self._client.execute_command(*command)
        except (RedisError, OSError, TimeoutError) as error:
            raise _unavailable(error) from error

    async def hash(self, key: str) -> dict[str, bytes]:
        """Return all of a hash."""
        return _pairs(await self.call("HGETALL", key))

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Return the answers to commands sent together; others' may come between them."""
        if not commands:
            return []
        try:
            async with self._client.pipeline(transaction=False) as sent:
                for command in commands:
                    sent.execute_command(*command)
                return list(await sent.execute())
        except (RedisError, OSError, TimeoutError) as error:
            raise _unavailable(error) from error

    async def commit(self, owner: str, revision: int, commands: Sequence[Command]) -> bool:
        """Apply all commands in one step if the owner's hash still has the revision, which rises; return
        whether it had. A commit whose answer was lost is asked for, never guessed at."""
        token = self.key("commit:" + secrets.token_hex(8))
        arguments: list[Argument] = [revision, KNOWN_S]
        for command in commands:
            arguments += [len(command), *command]
        try:
            done = bool(await self._evaluate(owner, token, arguments))
        except (RedisError, OSError, TimeoutError) as error:
            if not await self._happened(token):
                raise _unavailable(error) from error
            done = True
        if done and self._replicas:
            await self._replicated()
        return done

    async def ping(self) -> None:
        """Raise StoreUnavailable unless Redis answers."""
        await self.call("PING")

    async def now(self) -> float:
        """Return Redis's own clock: one for all replicas."""
        seconds, micros = await self.call("TIME")
        return float(int(seconds)) + int(micros) / 1e6

    async def warn_if_forgetful(self) -> None:
        """Log where Redis would lose what was acknowledged; some that are hosted do not tell."""
        with suppress(StoreUnavailable):
            persists = await self.call("CONFIG", "GET", "append*")
            found = {name: value.decode() for name, value in _pairs(persists).items()}
            if found.get("appendonly") != "yes" or found.get("appendfsync") != "always":
                observe.log.warning("redis.not_durable", wanted="appendonly yes, appendfsync always")

    async def close(self) -> None:
        with suppress(RedisError, OSError, TimeoutError):
            await self._client.aclose()

    async def _evaluate(self, owner: str, token: str, arguments: Sequence[Argument]) -> Any:
        if not self._script:
            self._script = await self._client.execute_command("SCRIPT", "LOAD", _COMMIT)
        try:
            return await self._client.execute_command("EVALSHA", self._script, 2, owner, token, *arguments)
        except NoScriptError:  # it was restarted, or another has become the primary
            return await self._client.execute_command("EVAL", _COMMIT, 2, owner, token, *arguments)

    async def _happened(self, token: str) -> bool:
        """Return whether the commit with this token was applied. Raises StoreUnavailable if nobody knows."""
        for _ in range(_ASKS):
            try:
                return bool(await self._client.execute_command("EXISTS", token))
            except (RedisError, OSError, TimeoutError):
                await asyncio.sleep(_ASK_S)
        raise StoreUnavailable("Redis went away during a commit")

    async def _replicated(self) -> None:
        acknowledged = await self.call("WAIT", self._replicas, self._replica_wait_ms)
        if int(acknowledged) < self._replicas:
            raise StoreUnavailable("too few of Redis's replicas have what was written")


def _unavailable(error: Exception) -> StoreUnavailable:
    """Name the kind of error only: its text may hold what was to be stored."""
    return StoreUnavailable(f"Redis: {type(error).__name__}")


def _pairs(answer: Any) -> dict[str, bytes]:
    """Return names and values, whichever version of the protocol the server speaks."""
    items = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    return {name.decode(): value for name, value in items}
