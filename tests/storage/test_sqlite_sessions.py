"""Sessions over SQLite where other processes share the file."""

from proxy.storage.sqlite import SqliteStores
from tests.storage.making import ANNA, NOW, exchange


async def test_ending_a_session_takes_what_a_dead_process_left_open(tmp_path):
    dead, living = SqliteStores(tmp_path), SqliteStores(tmp_path)
    await dead.open()
    await living.open()
    await dead.sessions.begin(exchange("broken off"))
    assert await living.sessions.end(ANNA, "s1", NOW) == 1
    assert await living.jobs.claim(NOW, 60) is None  # its process may still answer
    await dead.close()
    assert await living.sessions.end(ANNA, "s1", NOW) == 1
    job = await living.jobs.claim(NOW, 60)
    (found,) = (await living.jobs.batch(job, limit=9, context=0)).pending
    assert (found.said, found.whole) == ("broken off", False)
    await living.close()
