"""Who may do what: the credential's user, tenant and rights, on every operation."""

from typing import Any

from proxy import __version__
from proxy.http.auth.identity import Caller
from proxy.http.memory_api.app import Operation
from proxy.http.memory_api.openapi import OPERATIONS
from tests.http.memory_api.conftest import Bench

MEMORY = frozenset(("memory",))
OF_ALL_USERS = ("listJobs", "retryJobs", "retryJob", "listReceipts", "exportMemories", "importMemories")
NDJSON = {"content-type": "application/x-ndjson"}


BODIES: dict[str, Any] = {
    "addMemory": {"content": "User likes figs."},
    "searchMemories": {"query": "figs"},
    "explainRecall": {"messages": [{"role": "user", "content": "Figs?"}]},
    "postDocument": {"name": "Guide", "content": "Pick figs ripe."},
    "editMemory": {"importance": 0.5},
    "decideContradiction": {"keep": "both"},
    "setEvolutionSettings": {"half_life_days": 7},
}


def path_of(operation: Operation, memory_id: str = "mem_none") -> str:
    ids = {"memory_id": memory_id, "session_id": "s", "job_id": "1", "held_id": "q", "document_id": "d"}
    ids |= {"contradiction_id": "cntr_none", "entity_id": "ent_none"}
    return operation.path.format(**ids).removeprefix("/v1")


async def ask(bench: Bench, operation: Operation, path: str, params: dict[str, str] | None = None) -> Any:
    more: dict[str, Any] = {"json": BODIES[operation.id]} if operation.id in BODIES else {}
    if operation.takes_lines:
        more = {"content": b"", "headers": NDJSON}
    return await bench.http.request(operation.method, path, params=params, **more)


async def test_a_credential_without_the_right_memory_is_refused_everywhere(bench):
    bench.call_as(Caller("default", user="alice", rights=frozenset(("chat",))))
    for operation in OPERATIONS:
        answer = await ask(bench, operation, path_of(operation))
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "missing_right"), operation.id


async def test_what_concerns_the_whole_tenant_takes_the_right_admin(bench):
    for operation in (o for o in OPERATIONS if o.id in OF_ALL_USERS):
        bench.call_as(Caller("default", rights=MEMORY))
        refused = await ask(bench, operation, path_of(operation))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_right"), operation.id
        allowed = await ask(bench, operation, path_of(operation), {"user_id": "alice"})
        assert allowed.status_code in (200, 404)  # 404: there is no such job
        bench.call_as(Caller("default", user="alice", rights=MEMORY))
        assert (await ask(bench, operation, path_of(operation))).status_code in (200, 404)


async def test_another_users_name_is_refused_to_a_credential_with_a_user(bench):
    made = await bench.add("User likes figs.", user="bob")
    bench.call_as(Caller("default", user="alice"))
    for operation in (o for o in OPERATIONS if "user_id" in o.query.model_fields):
        answer = await ask(bench, operation, path_of(operation, made["id"]), {"user_id": "bob"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (403, "user_id"), operation.id
    for operation in (o for o in OPERATIONS if o.body and "user_id" in o.body.model_fields):
        body = {**BODIES.get(operation.id, {}), "user_id": "bob"}
        answer = await bench.http.request(operation.method, path_of(operation), json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (403, "user_id"), operation.id
    bench.call_as(Caller("default"))
    assert (await bench.http.get(f"/memory/{made['id']}")).json()["content"] == "User likes figs."


async def test_me_tells_what_the_credential_fixes(bench):
    bench.call_as(Caller("acme", user="alice", rights=MEMORY, label="key:k"))
    assert (await bench.http.get("/memory/me")).json() == {
        "object": "memory.identity", "mode": "open", "tenant": "acme", "user_id": "alice",
        "rights": ["memory"], "needs_credential": False, "version": __version__,
    }  # fmt: skip
