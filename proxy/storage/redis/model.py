"""The embedding models that vectors were made with, each a generation; the last is the store's.

While the memories are embedded anew, vectors of two generations lie side by side, in a collection each.
Whoever reads is given those of its own model and none of another's, so that the rest is found by its words.
"""

import orjson

from proxy.domain.ports import EmbeddingModel
from proxy.storage.generations import FIRST, Held, made_with_another, unknown_to
from proxy.storage.redis.connection import Redis

# Two processes that start at once name one model once.
_APPEND = "if redis.call('LLEN', KEYS[1]) == tonumber(ARGV[1]) then redis.call('RPUSH', KEYS[1], ARGV[2]) end"


async def stamp(redis: Redis, model: EmbeddingModel) -> None:
    """Name the model in the store, or raise WrongModel if there are vectors of another one."""
    named = await models(redis)
    if named and named[-1] == (model.name, model.dimension):
        return
    if named and await redis.call("EXISTS", redis.key("embedded")):
        name, dimension = named[-1]
        raise made_with_another(name, dimension, model)
    await _name(redis, model, len(named))
    await stamp(redis, model)  # another process may have named one since we looked


async def begin(redis: Redis, model: EmbeddingModel) -> int:
    """Make the model the store's from now on, and return its generation."""
    while True:
        generation = len(await models(redis))
        await _name(redis, model, generation)
        if (await models(redis))[generation] == (model.name, model.dimension):
            return generation


async def _name(redis: Redis, model: EmbeddingModel, generation: int) -> None:
    """Name the model as this generation, unless there is one already."""
    named = orjson.dumps([model.name, model.dimension])
    await redis.call("EVAL", _APPEND, 1, redis.key("models"), generation, named)


async def held(redis: Redis, model: EmbeddingModel | None) -> Held:
    """Return what a process with this model may do. One that named none is taken to use the store's.

    Raises WrongModel if the store knows nothing of the model: it was replaced under the process.
    """
    named = await models(redis)
    if not named:
        return Held(FIRST, None, (FIRST,))
    name, dimension = (model.name, model.dimension) if model else named[-1]
    ours = tuple(at for at, each in enumerate(named) if each == (name, dimension))
    if not ours:
        raise unknown_to(named[-1][0], name)
    return Held(ours[-1], dimension, ours)


async def newest(redis: Redis) -> int:
    """Return the generation of the store's model, -1 before one was named."""
    return int(await redis.call("LLEN", redis.key("models"))) - 1


async def models(redis: Redis) -> list[tuple[str, int]]:
    """Return names and dimensions of the models by generation."""
    rows = [orjson.loads(row) for row in await redis.call("LRANGE", redis.key("models"), 0, -1)]
    return [(name, dimension) for name, dimension in rows]
