"""The MCP server: tools with which a model searches, adds, updates, forgets and lists one user's memories.

Each tool is one request of the memory API, which checks the arguments and the caller. No tool has an argument
for the user or the project: both come from the credential and from the headers of the transport, which is
either `memory-proxy mcp` (stdio; requests to a running proxy) or `/mcp` (proxy/http/memory_api/app.py).
"""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import mcp_types as types
import yaml
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from proxy import __version__
from proxy.client import MemoryClient, NotAnswering, RequestRefused
from proxy.client.command_line import DEFAULT_URL
from proxy.client.commands import API_KEY, STORED
from proxy.domain.core import KINDS

USER = "MEMORY_PROXY_USER"  # the environment variable that names the user
Answer = dict[str, Any]

_TEXTS = yaml.safe_load((files(__package__) / "mcp_tools.yaml").read_text("utf-8"))
NO_USER = (
    "No user is named, and the credential fixes none. Name one with the header X-Memory-User-Id, or with"
    f" --user or {USER} for `memory-proxy mcp`."
)


# ---------------------------------------------------------------- tools
@dataclass(frozen=True, slots=True)
class Call:
    """One request of the memory API. `path`: the segments below /v1/memory."""

    method: str
    path: tuple[str, ...] = ()
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, the request that it makes of its arguments, and what it shows of the answer: text, and data."""

    shown: types.Tool
    call: Callable[[dict[str, Any]], Call]
    result: Callable[[Answer], tuple[str, Answer]]

    def checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments without those that are null, since models fill in optional ones. Raises
        RequestRefused for unknown names, such as a user's, and missing ones; the API checks the values."""
        schema = self.shown.input_schema
        if unknown := sorted(arguments.keys() - schema["properties"].keys()):
            known = ", ".join(schema["properties"])
            raise RequestRefused(400, f"Unknown argument `{unknown[0][:64]}`. Known: {known}.")
        for name in schema["required"]:
            if not isinstance(arguments.get(name), str):
                raise RequestRefused(400, f"`{name}` is required, as a string.")
        may_be_null = {name for name, one in schema["properties"].items() if "null" in one.get("type", ())}
        return {name: v for name, v in arguments.items() if v is not None or name in may_be_null}


Send = Callable[[Any, Call], Awaitable[Answer]]
"""Sends a call for the user of an HTTP request (None: stdio). Raises RequestRefused and NotAnswering."""


def server(send: Send) -> Server[Any]:
    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.shown for tool in TOOLS.values()])

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            if (tool := TOOLS.get(params.name)) is None:
                raise RequestRefused(404, f"Unknown tool. Known: {', '.join(TOOLS)}.")
            answer = await send(context.request, tool.call(tool.checked(params.arguments or {})))
        except (RequestRefused, NotAnswering) as error:
            text = str(error)
            if isinstance(error, NotAnswering):
                text = f"No memory-proxy answers at {text}. Start one with `memory-proxy serve`."
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
        text, data = tool.result(answer)
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=data)

    made: Server[Any] = Server(
        "memory-proxy",
        version=__version__,
        title="Memory",
        instructions=_TEXTS["instructions"],
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    made.middleware.clear()  # its spans; the proxy has its own
    return made


def _memory(memory: Answer) -> Answer:
    """Return what a model needs of a memory."""
    shown = {name: memory[name] for name in ("id", "content", "type", "tags", "project_id")}
    for name in ("created_at", "updated_at", "expires_at"):
        at = memory[name]
        shown[name] = at if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    return shown


def _line(memory: Answer) -> str:
    expires = f", expires {memory['expires_at']}" if memory["expires_at"] else ""
    return f"[{memory['id']}] {memory['content']} ({memory['type']}, {memory['created_at'][:10]}{expires})"


def _found(answer: Answer) -> tuple[str, Answer]:
    matches = [{**_memory(one["memory"]), "score": one["score"], "why": one["why"]} for one in answer["data"]]
    return "\n".join(map(_line, matches)) or "No memory matches.", {"memories": matches}


def _listed(answer: Answer) -> tuple[str, Answer]:
    memories = [_memory(one) for one in answer["data"]]
    text = "\n".join(map(_line, memories)) or "Nothing is remembered."
    data = {"memories": memories, "has_more": answer["has_more"], "total": answer.get("total")}
    if answer["has_more"]:
        text += f"\nThere are more: list again with after={memories[-1]['id']}."
    return text, data


def _stored(answer: Answer) -> tuple[str, Answer]:
    memory, change = _memory(answer), answer.get("change", "updated")
    first = STORED.get(change, "Stored" if change == "created" else "Updated")
    return f"{first}: {_line(memory)}", {"memory": memory, "change": change}


def _forgotten(answer: Answer) -> tuple[str, Answer]:
    counts = {n.removeprefix("deleted_"): answer[n] for n in answer if n.startswith("deleted_")}
    counts = {"memories": counts.pop("count"), **counts}
    what = ", ".join(f"{name} {n}" for name, n in counts.items() if n)
    text = f"{'Forgotten' if answer['deleted'] else 'Would be forgotten'}: {what}."
    data = {"id": answer["id"], "forgotten": answer["deleted"], "receipt": answer["receipt"]}
    return text, data | {"counts": counts}


# ---------------------------------------------------------------- the tools
def _without_id(given: Answer) -> Answer:
    return {name: value for name, value in given.items() if name != "id"}


_CALLS: dict[str, tuple[Callable[[Answer], Call], Callable[[Answer], tuple[str, Answer]]]] = {
    "search": (lambda given: Call("POST", ("search",), body=given), _found),
    "add": (lambda given: Call("POST", body=given), _stored),
    "update": (lambda given: Call("PATCH", (given["id"],), body=_without_id(given)), _stored),
    "forget": (lambda given: Call("DELETE", (given["id"],), query=_without_id(given)), _forgotten),
    "list": (lambda given: Call("GET", query=given), _listed),
}


def _tool(described: Answer) -> Tool:
    properties, returns = described["arguments"], described["returns"]
    for schema in (properties.get("type"), properties.get("memory_types", {}).get("items")):
        if schema is not None:
            schema["enum"] = sorted(KINDS)
    arguments = {"type": "object", "properties": properties, "required": described["required"]}
    shown = types.Tool(
        name=described["name"],
        title=f"{described['name'].capitalize()} memories",
        description=described["description"],
        input_schema=arguments | {"additionalProperties": False},
        output_schema={"type": "object", "properties": returns, "required": list(returns)},
        annotations=types.ToolAnnotations.model_validate(described["annotations"]),
    )
    return Tool(shown, *_CALLS[shown.name])


TOOLS = {tool.shown.name: tool for tool in map(_tool, _TEXTS["tools"])}


# ---------------------------------------------------------------- memory-proxy mcp
def add_mcp(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serve the memory of a running proxy to an MCP client, over standard input and output. MCP clients"
        " that speak HTTP need no command: they connect to the proxy's /mcp."
    )
    default = os.environ.get("MEMORY_PROXY_URL") or DEFAULT_URL
    parser.add_argument("--url", default=default, help="address of the proxy (default: $MEMORY_PROXY_URL)")
    parser.add_argument(
        "--key", help=f"the credential; better in {API_KEY}, since lists of processes show arguments"
    )
    parser.add_argument("--user", metavar="ID", help=f"the user, if the credential fixes none ({USER})")
    parser.add_argument("--project", metavar="ID", help="the project")
    parser.set_defaults(func=_serve)


def _serve(args: argparse.Namespace) -> int:
    user = args.user or os.environ.get(USER)
    named = {"X-Memory-User-Id": user, "X-Memory-Project-Id": args.project}
    headers = {name: value for name, value in named.items() if value}
    client = MemoryClient(args.url, args.key or os.environ.get(API_KEY, ""), headers)

    def request(call: Call) -> Answer:
        # Without a user, an id would be looked up among all users.
        if not user and client.get("me")["user_id"] is None:
            raise RequestRefused(400, NO_USER)
        return client.send(call.method, *call.path, query=dict(call.query), body=call.body)

    async def send(_request: None, call: Call) -> Answer:
        return await asyncio.to_thread(request, call)

    async def run() -> None:
        made = server(send)
        async with stdio_server() as (incoming, outgoing):
            await made.run(incoming, outgoing, made.create_initialization_options())

    asyncio.run(run())
    return 0
