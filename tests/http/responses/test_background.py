"""Background responses of one process: who sees them, and what their followers get."""

import asyncio

from proxy.http.asgi import Header
from proxy.http.auth.identity import Caller
from proxy.http.responses.ownership import Owner, owner_of
from proxy.http.responses.response_store import BackgroundResponse

KEY: list[Header] = [(b"authorization", b"Bearer sk-1")]
OTHER: list[Header] = [(b"authorization", b"Bearer sk-2")]


def owner(user: str | None = None, key: list[Header] = KEY) -> Owner:
    return owner_of(Caller("default"), key, user)


def live(of: Owner, size: int = 0) -> BackgroundResponse:
    made = BackgroundResponse("resp_1", of, lambda: {"status": "in_progress"})
    made.add(b"x" * size)
    return made


async def test_a_follower_gets_every_event_once_from_where_it_wants_to_the_end():
    made = live(owner(), size=1)

    async def follow(after):
        return b"".join([piece async for piece in made.follow(after)])

    followers = [asyncio.create_task(follow(after)) for after in (-1, 0, 1, 9)]
    for event in (b"b", b"c"):
        await asyncio.sleep(0)
        made.add(event)
    made.end()
    assert await asyncio.gather(*followers) == [b"xbc", b"bc", b"c", b""]
