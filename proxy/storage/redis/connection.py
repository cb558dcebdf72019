"""One process's connections to Redis, and the script that commits a unit of work."""

import asyncio
import hashlib
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from redis.asyncio import Redis as Client
from redis.exceptions import NoScriptError, OutOfMemoryError, RedisError, ResponseError

from proxy import telemetry
from proxy.domain.errors import StoreUnavailable
from proxy.storage.redis.trouble import Trouble

Argument = str | bytes | int | float
Command = Sequence[Argument]

KNOWN_S = 60  # how long a commit can be asked whether it happened
MOST_AT_ONCE = (
    64  # commands under way; the client's pool gives an error where it would have to make others wait
)
_ASK_S = 0.2
_ASKS = 5
_CODE = re.compile(r"[A-Z]{3,}(?= )")  # DENIED, LOADING, NOAUTH
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
_THOUGH_FULL = "#!lua flags=allow-oom\n"  # before a script; from Redis 7 on


class Redis:
    """Commands to one Redis. All of them raise StoreUnavailable when it cannot be reached, and whatever comes
    after finds it again by itself, also under another primary."""

    def __init__(self, client: Client, *, prefix: str, replicas: int = 0, replica_wait_ms: int = 100) -> None:
        """`replicas`: how many must have a commit before it counts as done."""
        self._client: Any = client  # its commands have no types
        self.prefix = prefix
        self._replicas, self._replica_wait_ms = replicas, replica_wait_ms
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._script = ""
        self.trouble = Trouble()

    def key(self, name: str) -> str:
        """Return the key of something that all users share."""
        return self.prefix + name

    async def call(self, *command: Argument) -> Any:
        """Return the answer to one command."""
        try:
            return await self._one(*command)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from error

    async def hash(self, key: str) -> dict[str, bytes]:
        """Return all of a hash."""
        return pairs(await self.call("HGETALL", key))

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Return the answers to commands sent together; others' may come between them."""
        if not commands:
            return []
        try:
            return await self._all(commands)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from error

    async def commit(
        self, owner: str, revision: int, commands: Sequence[Command], *, though_full: bool = False
    ) -> bool:
        """Apply all commands in one step if the owner's hash still has the revision, which rises; return
        whether it had. A commit whose answer was lost is asked for, never guessed at. `though_full`: also
        where Redis has no memory left."""
        token = self.key("commit:" + secrets.token_hex(8))
        arguments: list[Argument] = [revision, KNOWN_S]
        for command in commands:
            arguments += [len(command), *command]
        try:
            try:
                done, *acknowledged = await self._evaluate(owner, token, arguments)
            except OutOfMemoryError:  # nothing was applied
                if not though_full:
                    raise
                done, *acknowledged = await self._evaluate(owner, token, arguments, prefix=_THOUGH_FULL)
        except (RedisError, OSError, TimeoutError) as error:
            self.trouble.refused(error)
            if not await self._happened(token):
                raise unavailable(error) from error
            done, acknowledged = 1, []
        else:
            if done and not though_full:  # else it says nothing about other writes
                self.trouble.worked()
        if done and self._replicas and (not acknowledged or int(acknowledged[0]) < self._replicas):
            raise StoreUnavailable("too few of Redis's replicas have what was written")
        return bool(done)

    async def script(
        self, source: str, keys: Sequence[str], *arguments: Argument, though_full: bool = False
    ) -> Any:
        """Return what a Lua script returns, which changes nothing or nothing that has to be durable."""
        digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        with_them = (len(keys), *keys, *arguments)
        try:
            try:
                return await self._known(digest, source, with_them)
            except OutOfMemoryError:  # it has written nothing: else it would not have been stopped
                if not though_full:
                    raise
                return await self._one("EVAL", _THOUGH_FULL + source, *with_them)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from error

    async def _known(self, digest: str, source: str, with_them: Command) -> Any:
        """Return what a script returns that Redis knows, or learns."""
        try:
            return await self._one("EVALSHA", digest, *with_them)
        except NoScriptError:  # it was restarted, or another has become the primary
            return await self._one("EVAL", source, *with_them)

    async def ping(self) -> None:
        """Raise StoreUnavailable unless Redis answers."""
        await self.call("PING")

    async def probe(self) -> None:
        """Write something where writing was in trouble, so that it is known when that is over."""
        self.trouble.settle()
        if self.trouble.kind:
            with suppress(StoreUnavailable):
                await self.commit(self.key("probe"), 0, [("PEXPIRE", self.key("probe"), 1)])

    async def now(self) -> float:
        """Return Redis's own clock: one for all replicas."""
        seconds, micros = await self.call("TIME")
        return float(int(seconds)) + int(micros) / 1e6

    async def configured(self, *names: str) -> dict[str, str]:
        """Return settings of the server by name. Some that are hosted do not tell: StoreUnavailable."""
        found = pairs(await self.call("CONFIG", "GET", *names))
        return {name: value.decode() for name, value in found.items()}

    async def eviction_policy(self) -> str:
        """Return what the server deletes when it is full, "" where it does not say. By INFO: hosted servers
        refuse CONFIG."""
        with suppress(StoreUnavailable):
            found = await self.call("INFO", "memory")
            return str(found.get("maxmemory_policy", "")) if isinstance(found, dict) else ""
        return ""

    async def warn_if_forgetful(self) -> None:
        """Log where Redis would lose what was acknowledged."""
        with suppress(StoreUnavailable):
            found = await self.configured("appendonly", "appendfsync")
            if found.get("appendonly") != "yes" or found.get("appendfsync") != "always":
                telemetry.log.warning("redis.not_durable", wanted="appendonly yes, appendfsync always")

    async def close(self) -> None:
        # The client knows the sentinels that it asks, and leaves their connections to us.
        manager = getattr(self._client.connection_pool, "sentinel_manager", None)
        for client in (self._client, *(manager.sentinels if manager else ())):
            with suppress(RedisError, OSError, TimeoutError):
                await client.aclose()

    async def _one(self, *command: Argument) -> Any:
        async with self._room:
            with _cancellable():
                return await self._client.execute_command(*command)

    async def _all(self, commands: Sequence[Command]) -> list[Any]:
        with _cancellable():
            async with self._room, self._client.pipeline(transaction=False) as sent:
                for command in commands:
                    sent.execute_command(*command)
                return list(await sent.execute())

    async def _evaluate(
        self, owner: str, token: str, arguments: Sequence[Argument], *, prefix: str = ""
    ) -> list[Any]:
        """Return the script's answer and, where replicas count, how many of them have what it wrote; that has
        to be asked over the same connection."""
        with_them = (2, owner, token, *arguments)
        wait: list[Command] = [("WAIT", self._replicas, self._replica_wait_ms)] if self._replicas else []
        if prefix:
            return await self._all([("EVAL", prefix + _COMMIT, *with_them), *wait])
        if not self._script:
            self._script = await self._one("SCRIPT", "LOAD", _COMMIT)
        try:
            return await self._all([("EVALSHA", self._script, *with_them), *wait])
        except NoScriptError:  # it was restarted, or another has become the primary
            return await self._all([("EVAL", _COMMIT, *with_them), *wait])

    async def _happened(self, token: str) -> bool:
        """Return whether the commit with this token was applied. Raises StoreUnavailable if nobody knows."""
        for _ in range(_ASKS):
            try:
                return bool(await self._one("EXISTS", token))
            except (RedisError, OSError, TimeoutError):
                await asyncio.sleep(_ASK_S)
        raise StoreUnavailable("Redis went away during a commit")


def unavailable(error: Exception) -> StoreUnavailable:
    """Name the kind of error and Redis's word for it only: its text may hold what was to be stored."""
    code = _CODE.match(str(error)) if isinstance(error, ResponseError) else None
    return StoreUnavailable(f"Redis: {type(error).__name__}{f' {code[0]}' if code else ''}")


@contextmanager
def _cancellable() -> Iterator[None]:
    """Raise CancelledError if the task was cancelled in here. The client waits with asyncio.wait_for, which
    in Python 3.11 drops a cancellation that comes with what it waits for."""
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError


def pairs(answer: Any) -> dict[str, bytes]:
    """Return names and values, whichever version of the protocol the server speaks."""
    items = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    return {name.decode(): value for name, value in items}


def scored(answer: Any) -> list[tuple[str, float]]:
    """Return members and scores, whichever version of the protocol the server speaks."""
    nested = bool(answer) and isinstance(answer[0], list | tuple)
    items = answer if nested else zip(answer[::2], answer[1::2], strict=True)
    return [(member.decode(), float(score)) for member, score in items]
