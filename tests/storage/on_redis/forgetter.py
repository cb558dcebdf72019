"""A replica that forgets everything of a user, in small portions, until it is killed: forgetter.py URL"""

import asyncio
import sys

from proxy.storage.redis import clearing, forgetting
from tests.storage.making import ANNA, of
from tests.storage.on_redis.forgetting_support import opened


async def main(url: str) -> None:
    forgetting.AT_ONCE, clearing._ROWS, clearing._TABLES = 1, 10, 5
    stores = await opened(url)
    print("ready", flush=True)
    sys.stdin.readline()
    await stores.memories.forget(of(ANNA), by="test")
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
