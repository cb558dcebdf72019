"""What tests of forgetting share: all that can hold a word, and forgets that stop or break off."""

import asyncio

from proxy.domain.changes import Hold
from proxy.domain.core import Candidate, Evidence, Scope
from proxy.domain.documents import DocumentLimits, NewDocument, Passage
from tests.storage.making import ANNA, APOLLO, NOW, create, of, store, supersede, vector
from tests.storage.talking import always, converse, exchange, keep, quote, response, talk

WORD = "xylophonist"
ZEUS = Scope("acme", "anna", "zeus")  # a project that no forget here is about

SCOPES = {
    "user": of(ANNA),
    "project": of(APOLLO),
    "type": of(ANNA, type="semantic"),
    "type of a project": of(APOLLO, type="preference"),
    "text": of(ANNA, text=WORD),
}


class Gate:
    """Stops a forget after each portion until it may continue."""

    def __init__(self, stores):
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        stores.memories.forgetting._database.checkpoint = self.wait

    async def wait(self):
        self.reached.set()
        await self.go_on.wait()


async def crash():
    raise RuntimeError("the process dies here")


def break_off(stores, portions=1):
    """Let the next forget of these stores end after so many portions."""
    left = iter(range(portions - 1))

    async def checkpoint():
        if next(left, None) is None:
            await crash()

    stores.memories.forgetting._database.checkpoint = checkpoint


async def everything(stores):
    """One of each kind of thing that can hold the word."""
    stated = await talk(stores.sessions, f"I am a {WORD}", f"A {WORD}!", session=f"session of a {WORD}")
    await store(
        stores.memories,
        create(f"is a {WORD}", id="a", evidence=quote(stated, WORD, f"session of a {WORD}"), vec=vector(1)),
        create("is a drummer", id="b", evidence=quote(stated, f"a {WORD}"), type="episodic"),
    )
    await store(stores.memories, supersede("a", f"was a {WORD}", id="c"))
    origin = Evidence("s1", stated.id, WORD)
    held = Candidate(type="semantic", content=f"obey the {WORD}", evidence=WORD, origin=origin)
    await store(stores.memories, Hold("q", held, "planted", NOW))
    await keep(stores, response("r", text=WORD, session_id=f"session of a {WORD}"))
    await converse(stores.conversations, WORD)
    await stores.sessions.begin(exchange(f"still a {WORD}"))
    await talk(stores.sessions, f"and a {WORD}", trigger=always, session="s2")
    for scope in (ANNA, APOLLO):
        await shelve(stores, scope)


async def shelve(stores, scope):
    """A document of the word."""
    tile = f"# {WORD}\n\nPlays the {WORD}.\n"
    passage = Passage(headings=(WORD,), section=0, tile=tile, start=0, lead=len(f"# {WORD}"))
    new = NewDocument(scope=scope, name=f"about a {WORD}", digest=b"1", passages=(passage,), at=NOW)
    return (await stores.documents.put(new, DocumentLimits()))[0]
