"""What the people of the soak do over HTTP, and whether each answer is as it was promised."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp

from bench.soak.people import FACTS, SMALL_TALK, Crowd, Person, StatedFact, asked

MODEL = "scripted-demo"
TURNS = 5  # of a conversation
# A fact must be known this long after it was stated: four turns, each just before 15 s of silence are over,
# then the silence, then its extraction.
REMEMBERED_S = 80.0
DOCUMENT = "# {0}\n\n## Opening\n\nThe gate of {0} is opened at dawn by hand.\n\n## Closing\n\nAt dusk.\n"


class Wrong(Exception):
    """An answer was not as promised. `kind` is a constant; `seen` is what was there instead."""

    def __init__(self, kind: str, seen: object = "") -> None:
        super().__init__(kind)
        self.kind, self.seen = kind, f"{seen}"[:2_000]


@dataclass(slots=True)
class Tally:
    """What was done, and what was not as promised."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    recalled: int = 0
    seen: list[str] = field(default_factory=list)  # the last ones that were wrong, in full
    memory_ms: list[tuple[float, float]] = field(default_factory=list)  # when, and what memory added

    def note(self, error: Wrong, person: Person) -> None:
        """Count an answer that was wrong."""
        self.wrong[error.kind] += 1
        self.seen = [
            *self.seen[-49:],
            f"{error.kind} at {time.monotonic():.1f}: {person.user_id}: {error.seen}",
        ]


@dataclass(slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Any
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    def expect(self, status: int, kind: str) -> "Answer":
        if self.status != status:
            raise Wrong(f"{kind}: status {self.status}", self.raw)
        return self


class Acts:
    """The actions of simulated people. A person does one at a time."""

    def __init__(self, http: aiohttp.ClientSession, base_url: str, crowd: Crowd, rng: Random) -> None:
        self._http, self._base, self._crowd, self._rng = http, base_url, crowd, rng
        self.tally = Tally()
        # How often each is done, in a thousand. Most of what applications do is to chat.
        self._mix: dict[Callable[[Person], Awaitable[None]], int] = {
            self.tell: 250,
            self.ask: 250,
            self.small_talk: 110,
            self.respond: 90,
            self.search: 60,
            self.look_through: 40,
            self.hang_up: 50,
            self.garbage: 50,
            self.add: 20,
            self.forget_one: 30,
            self.document: 30,
            self.pass_through: 20,
        }

    async def look_around(self) -> None:
        """Leave out what this proxy does not have: some stores keep no documents."""
        if (await self._call("GET", "/memory/documents?user_id=soak")).status == 404:
            del self._mix[self.document]

    async def one(self, person: Person) -> None:
        """Do something, and count it. Who has lived long enough is forgotten instead."""
        over = person.acts >= person.lifetime
        act = self.leave if over else self._rng.choices([*self._mix], [*self._mix.values()])[0]
        person.acts += 1
        try:
            async with asyncio.timeout(60):
                await act(person)
        except Wrong as error:
            self.tally.note(error, person)
        except (aiohttp.ClientError, TimeoutError) as error:
            self.tally.wrong[f"{act.__name__}: {type(error).__name__}"] += 1
        self.tally.done[act.__name__] += 1
        if over:
            self._crowd.bury(person)
        else:
            self._crowd.give_back(person)

    # ------------------------------------------------------------ conversations
    async def tell(self, person: Person) -> None:
        """Say a fact, one time in five with "please remember"."""
        untold = person.untold()
        if not untold:
            return await self.ask(person)
        stated = StatedFact(self._rng.choice(untold), self._crowd.word(), 0)
        said = FACTS[stated.fact][0].format(stated.word)
        if self._rng.random() < 0.2:
            said = f"Please remember: {said[0].lower() + said[1:] if said.startswith('My') else said}"
        answer = await self._chat(person, said)
        if answer.headers.get("x-memory-store") != "queued":
            raise Wrong("tell: not queued")
        stated.at = time.monotonic()
        person.stated.append(stated)
        return None

    async def ask(self, person: Person) -> None:
        """Ask for a fact that must be known, in a new conversation, so that only memory can answer."""
        question = asked(self._rng, person.known(time.monotonic() - REMEMBERED_S))
        if question is None:
            return await self.small_talk(person)
        person.turn_over()
        answer = await self._chat(person, question[0])
        self.tally.asked += 1
        self.tally.recalled += question[1].word in person.messages[-1]["content"]
        if answer.headers.get("x-memory-status") == "degraded":
            raise Wrong("ask: degraded")
        return None

    async def small_talk(self, person: Person) -> None:
        await self._chat(person, self._rng.choice(SMALL_TALK))

    async def _chat(self, person: Person, said: str) -> Answer:
        """Say something in the person's conversation, streamed or not, and keep what was answered."""
        if len(person.messages) >= 2 * TURNS:
            person.turn_over()
        streamed = self._rng.random() < 0.5
        messages = [*person.messages, {"role": "user", "content": said}]
        body = {"model": MODEL, "messages": messages, "stream": streamed, "memory_context": _who(person)}
        answer = (await self._post("/chat/completions", body)).expect(200, "chat")
        text = _streamed(answer.raw) if streamed else answer.json["choices"][0]["message"]["content"]
        if not text:
            raise Wrong("chat: no text")
        person.messages = [*messages, {"role": "assistant", "content": text}]
        for part in answer.headers.get("server-timing", "").split(","):
            name, _, value = part.strip().partition(";dur=")
            if name == "memory":
                self.tally.memory_ms.append((time.monotonic(), float(value)))
        return answer

    async def respond(self, person: Person) -> None:
        """Say something over the Responses API, in a chain of up to four."""
        body: dict[str, Any] = {"model": MODEL, "input": self._rng.choice(SMALL_TALK)}
        body |= {"stream": self._rng.random() < 0.5, "memory_context": {"user_id": person.user_id}}
        if person.response_id:
            body["previous_response_id"] = person.response_id
        answer = (await self._post("/responses", body)).expect(200, "respond")
        response = _completed(answer.raw) if body["stream"] else answer.json
        if response.get("status") != "completed":
            raise Wrong("respond: not completed")
        person.response_id, person.chain = response["id"], person.chain + 1
        if person.chain == 4:
            await self._end_chain(person)

    async def _end_chain(self, person: Person) -> None:
        """Read the last response and delete it: it can no longer be continued."""
        path, who = f"/responses/{person.response_id}", {"user_id": person.user_id}
        headers = {"x-memory-user-id": person.user_id}
        previous, person.response_id, person.chain = person.response_id, "", 0
        (await self._call("GET", path, headers=headers)).expect(200, "respond: read")
        (await self._call("DELETE", path, headers=headers)).expect(200, "respond: delete")
        (await self._call("GET", path, headers=headers)).expect(404, "respond: deleted")
        body = {"model": MODEL, "input": "And now?", "previous_response_id": previous, "memory_context": who}
        if (await self._post("/responses", body)).status not in (400, 404):
            raise Wrong("respond: continued a deleted response")

    async def hang_up(self, person: Person) -> None:
        """Leave in the middle of a stream. What was said may be remembered, or not: nothing is checked."""
        untold = person.untold()
        if not untold:
            return await self.small_talk(person)
        fact, word = untold[0], self._crowd.word()
        person.doubtful.add(f"{fact}:{word}")
        person.turn_over()
        said = [{"role": "user", "content": FACTS[fact][0].format(word)}]
        body = {"model": MODEL, "messages": said, "stream": True, "memory_context": _who(person)}
        async with self._http.post(f"{self._base}/chat/completions", json=body) as answer:
            if answer.status != 200:
                raise Wrong(f"hang_up: status {answer.status}")
            await answer.content.readany()
            answer.close()  # the connection, too
        person.turn_over()
        return None

    # ------------------------------------------------------------ the memory API
    async def search(self, person: Person) -> None:
        question = asked(self._rng, person.known(time.monotonic() - REMEMBERED_S))
        if question is None:
            return await self.look_through(person)
        body = {"user_id": person.user_id, "query": question[0]}
        answer = (await self._post("/memory/search", body)).expect(200, "search")
        if question[1].word not in answer.raw.decode():
            raise Wrong("search: not found", (question[1], answer.raw))
        return None

    async def look_through(self, person: Person) -> None:
        """See what is remembered: all that was promised, and nothing that was forgotten."""
        found = await self.remembered(person.user_id)
        settled = time.monotonic() - REMEMBERED_S
        for stated in person.stated:
            ids = [m["id"] for m in found if stated.word in m["content"]]
            facts = [m["id"] for m in found if m["id"] in ids and m["source"] != "summary"]
            if stated.forgotten and ids:
                raise Wrong("list: shows what was forgotten", (stated, [m for m in found if m["id"] in ids]))
            if len(facts) > 1:
                raise Wrong("list: stored twice", (stated, found))
            if not stated.forgotten and stated.at < settled and not facts:
                raise Wrong("list: not remembered", (stated, found))
            stated.memory_id = facts[0] if facts else ""

    async def remembered(self, user_id: str) -> list[dict[str, Any]]:
        """Return the memories of a user."""
        answer = await self._call("GET", f"/memory?user_id={user_id}&limit=100")
        found: list[dict[str, Any]] = answer.expect(200, "list").json["data"]
        return found

    async def add(self, person: Person) -> None:
        untold = person.untold()
        if not untold:
            return await self.look_through(person)
        stated = StatedFact(self._rng.choice(untold), self._crowd.word(), 0)
        content = FACTS[stated.fact][0].format(stated.word).replace("My ", "User's ").replace("I ", "User ")
        answer = await self._post("/memory", {"user_id": person.user_id, "content": content})
        stated.memory_id, stated.at = answer.expect(201, "add").json["id"], time.monotonic()
        person.stated.append(stated)
        return None

    async def forget_one(self, person: Person) -> None:
        """Forget a memory that a list has shown; then it is not there."""
        await self.look_through(person)
        shown = [t for t in person.known(time.monotonic()) if t.memory_id]
        if not shown:
            return
        stated = self._rng.choice(shown)
        (await self._call("DELETE", f"/memory/{stated.memory_id}")).expect(200, "forget_one")
        stated.forgotten = True
        person.response_id, person.chain = "", 0  # answers that hold it went, and chains with them
        (await self._call("GET", f"/memory/{stated.memory_id}")).expect(404, "forget_one: still there")
        person.turn_over()  # the old conversation would tell it again

    async def leave(self, person: Person) -> None:
        """Have all of oneself forgotten; then nothing is there."""
        (await self._call("DELETE", f"/memory?user_id={person.user_id}")).expect(200, "leave")
        if await self.remembered(person.user_id):
            raise Wrong("leave: something is left")

    async def document(self, person: Person) -> None:
        """Add a document, or delete one; each person has at most three."""
        if len(person.documents) == 3:
            name, id_ = person.documents.popitem()
            (await self._call("DELETE", f"/memory/documents/{id_}")).expect(200, "document: delete")
            (await self._call("GET", f"/memory/documents/{id_}")).expect(404, "document: still there")
            return
        name = self._crowd.word()
        body = {"user_id": person.user_id, "name": name, "format": "markdown"}
        answer = await self._post("/memory/documents", body | {"content": DOCUMENT.format(name)})
        if answer.status not in (201, 202):
            raise Wrong(f"document: status {answer.status}")
        person.documents[name] = answer.json["id"]

    # ------------------------------------------------------------ what is not ours, and what is nothing
    async def pass_through(self, person: Person) -> None:
        body = {"model": MODEL, "input": "A sentence."}
        (await self._post("/embeddings", body)).expect(200, "pass_through")
        (await self._call("GET", "/models")).expect(200, "pass_through")

    async def garbage(self, person: Person) -> None:
        """Send an invalid request, which must be refused."""
        path, body, status = self._rng.choice(_GARBAGE)
        headers = {"content-type": "application/json"}
        (await self._call("POST", path, data=body, headers=headers)).expect(status, f"garbage to {path}")

    async def _post(self, path: str, body: dict[str, Any]) -> Answer:
        return await self._call("POST", path, json=body)

    async def _call(self, method: str, path: str, **options: Any) -> Answer:
        """Return the answer; one in eight comes over a connection that is closed after it."""
        headers = dict(options.pop("headers", None) or {})
        if self._rng.random() < 0.125:
            headers["connection"] = "close"
        async with self._http.request(method, self._base + path, headers=headers, **options) as answer:
            return Answer(answer.status, answer.headers, await answer.read())


_GARBAGE: tuple[tuple[str, bytes, int], ...] = (
    ("/chat/completions", b'{"model":', 400),
    ("/chat/completions", b"\xff\xfe\x00", 400),
    ("/chat/completions", b'{"model":"scripted-demo","messages":[],"memory_context":{"user_id":7}}', 400),
    ("/chat/completions", b'{"model":"scripted-demo","messages":"x","memory_context":{"user_id":"g"}}', 400),
    ("/responses", b"[1,2,3]", 400),
    ("/responses", b'{"model":"scripted-demo","input":"x","previous_response_id":"resp_0"}', 400),
    ("/memory", b'{"user_id":"g"}', 400),
    ("/memory/search", b"x" * 70_000, 400),
    ("/memory/documents", b'{"user_id":"g","name":"n"}', 400),
)


def _who(person: Person) -> dict[str, str]:
    return {"user_id": person.user_id, "session_id": person.session_id}


def _events(raw: bytes) -> list[dict[str, Any]]:
    lines = (line[6:] for line in raw.splitlines() if line.startswith(b"data: "))
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def _streamed(raw: bytes) -> str:
    """Return the text of a whole stream. Raises Wrong where its end is missing."""
    if not raw.endswith(b"data: [DONE]\n\n"):
        raise Wrong("chat: stream without its end")
    choices = (event["choices"][0] for event in _events(raw) if event.get("choices"))
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def _completed(raw: bytes) -> dict[str, Any]:
    """Return the response at the end of a stream of the Responses API."""
    for event in reversed(_events(raw)):
        if event.get("type") == "response.completed":
            response: dict[str, Any] = event["response"]
            return response
    raise Wrong("respond: stream without its end")
