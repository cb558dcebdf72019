"""A fake of the memory API, for the command line."""

import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from proxy.domain.errors import error_body


@dataclass
class FakeProxy:
    unshown: str = ""  # why a chat would get no memories
    memories: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    # Of other operations, by method and path.
    answers: dict[tuple[str, str], Any] = field(default_factory=dict)
    authorization: str | None = None  # of the last export
    ids: Any = field(default_factory=lambda: itertools.count(1))

    def app(self) -> Starlette:
        one = "/v1/memory/{id}"
        return Starlette(
            routes=[
                Route("/v1/memory", self.add, methods=["POST"]),
                Route("/v1/memory", self.list, methods=["GET"]),
                Route("/v1/memory", self.forget_all, methods=["DELETE"]),
                Route("/v1/memory/search", self.search, methods=["POST"]),
                Route("/v1/memory/export", self.export, methods=["GET"]),
                Route("/v1/memory/import", self.import_memories, methods=["POST"]),
                *(Route(path, self.prepared, methods=[method]) for method, path in self.answers),
                Route(one, self.get, methods=["GET"]),
                Route(one, self.edit, methods=["PATCH"]),
                Route(one, self.forget, methods=["DELETE"]),
                Route(one + "/history", self.history, methods=["GET"]),
            ]
        )

    def store(self, user, content, type_="semantic", project=None):
        memory = {
            "id": f"mem_{next(self.ids):04}", "object": "memory", "type": type_, "content": content,
            "user_id": user, "project_id": project, "created_at": 1768400000, "superseded_by": None,
        }  # fmt: skip
        self.memories[memory["id"]] = memory
        return memory

    def of(self, user: str | None) -> list[dict[str, Any]]:
        return [m for m in self.memories.values() if user in (None, m["user_id"])]

    async def add(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(("POST", "/v1/memory", body))
        memory = self.store(body["user_id"], body["content"], body["type"], body.get("project_id"))
        return JSONResponse({**memory, "change": "created"}, 201)

    async def list(self, request: Request) -> Response:
        self.requests.append(("GET", "/v1/memory", dict(request.query_params)))
        if "user_id" not in request.query_params:
            return refusal(400, "`user_id` is missing.", "user_id")
        mine = self.of(request.query_params["user_id"])[::-1]
        page = mine[: int(request.query_params.get("limit", 20))]
        more = len(page) < len(mine)
        return JSONResponse({"object": "list", "data": page, "has_more": more, "total": len(mine)})

    async def search(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(("POST", "/v1/memory/search", body))
        data = [{"memory": m, "score": 0.5, "why": "dense .41"} for m in self.of(body["user_id"])]
        verdict = {"would_inject": not self.unshown, "reason": self.unshown or None}
        return JSONResponse({"object": "list", "data": data, "has_more": False, **verdict})

    async def get(self, request: Request) -> Response:
        memory = self.memories.get(request.path_params["id"])
        return JSONResponse(memory) if memory else absent(request)

    async def history(self, request: Request) -> Response:
        first = {"at": 1768400000, "action": "created", "by": "api", "content": "as it was"}
        then = {**first, "at": 1768400001, "action": "updated", "became": "as it is"}
        return JSONResponse({"object": "list", "data": [first, then], "has_more": False})

    async def edit(self, request: Request) -> Response:
        memory_id, changes = request.path_params["id"], await request.json()
        self.requests.append(("PATCH", memory_id, changes))
        if memory_id not in self.memories:
            return absent(request)
        self.memories[memory_id] |= changes
        return JSONResponse(self.memories[memory_id])

    async def export(self, request: Request) -> Response:
        self.authorization = request.headers.get("authorization")
        self.requests.append(("GET", "export", dict(request.query_params)))
        if "user_id" not in request.query_params:
            return refusal(403, "This credential lacks the right `admin`.", "user_id")
        lines = [json.dumps(m).encode() + b"\n" for m in self.of(request.query_params["user_id"])]
        return StreamingResponse(iter(lines), media_type="application/x-ndjson")

    async def import_memories(self, request: Request) -> Response:
        self.requests.append(("POST", "import", dict(request.query_params)))
        counts: dict[str, Any] = {"imported": 0, "skipped": 0, "refused": 0, "errors": []}
        for number, line in enumerate((await request.body()).splitlines(), 1):
            try:
                memory = json.loads(line)
            except ValueError:
                counts["refused"] += 1
                counts["errors"].append({"line": number, "message": "The body is not valid JSON."})
                continue
            counts["skipped" if memory["id"] in self.memories else "imported"] += 1
            self.memories[memory["id"]] = memory
        return JSONResponse({"object": "memory.import", **counts})

    async def prepared(self, request: Request) -> Response:
        raw = await request.body()
        given = json.loads(raw) if raw else dict(request.query_params)
        self.requests.append((request.method, request.url.path, given))
        return JSONResponse(self.answers[request.method, request.url.path])

    async def forget(self, request: Request) -> Response:
        memory_id = request.path_params["id"]
        self.requests.append(("DELETE", memory_id, dict(request.query_params)))
        if memory_id not in self.memories:
            return absent(request)
        if request.query_params.get("dry_run") == "true":
            counted = {"deleted": False, "dry_run": True, "deleted_count": 1}
            return JSONResponse({"id": memory_id, "object": "memory.deleted", **counted})
        del self.memories[memory_id]
        return JSONResponse(
            {"id": memory_id, "object": "memory.deleted", "deleted": True, "deleted_count": 1}
        )

    async def forget_all(self, request: Request) -> Response:
        self.requests.append(("DELETE", "/v1/memory", dict(request.query_params)))
        deleted = self.of(request.query_params["user_id"])
        if request.query_params.get("dry_run") == "true":
            counted = {"deleted": False, "dry_run": True, "deleted_count": len(deleted)}
            return JSONResponse({"object": "memory.deleted", **counted})
        for memory in deleted:
            del self.memories[memory["id"]]
        return JSONResponse({"object": "memory.deleted", "deleted": True, "deleted_count": len(deleted)})


def refusal(status: int, message: str, param: str) -> Response:
    return JSONResponse(error_body(message, "invalid_request_error", param, None), status)


def absent(request: Request) -> Response:
    return refusal(404, f"No memory with id '{request.path_params['id']}'.", "memory_id")


@contextmanager
def serving_in_thread(app: Any) -> Iterator[str]:
    """Serve the ASGI app on a free loopback port, for clients that block; yields its origin."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        # The socket listens already: a request before uvicorn is ready waits in the backlog.
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
