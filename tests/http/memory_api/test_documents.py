"""Documents over HTTP: posted, versioned, listed, shown, searched, deleted."""

from typing import Any

from proxy.http.auth.identity import Caller
from tests.http.memory_api.conftest import Bench

GUIDE = """\
# Greenhouse guide

Water at dawn.

## Figs

Pick them when the neck bends, and eat them on the same day.

## Winter

Drain the hoses before the first frost, or they burst.
"""
FROST = "What must I do with the hoses before it freezes?"
SECRET = "AKIA" + "IOSFODNN7" + "QX3ZPLK"


async def post(bench: Bench, content: str = GUIDE, status: int = 201, **more: Any) -> dict[str, Any]:
    body = {"name": "Greenhouse", "content": content, "user_id": "alice", **more}
    answer = await bench.http.post("/memory/documents", json=body)
    assert answer.status_code == status, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def passages(bench: Bench, user: str = "alice") -> list[dict[str, Any]]:
    body = {"query": FROST, "user_id": user, "include": ["documents"]}
    found: list[dict[str, Any]] = (await bench.http.post("/memory/search", json=body)).json()["documents"]
    return found


async def test_a_document_is_posted_listed_and_found_with_what_is_needed_to_cite_it(bench):
    made = await post(bench)
    expected = {
        "object": "memory.document", "name": "Greenhouse", "version": 1, "status": "ready",
        "user_id": "alice", "project_id": None, "characters": len(GUIDE), "sections": 3, "passages": 3,
    }  # fmt: skip
    assert {**made, **expected, "change": "created", "redacted": []} == made
    (listed,) = (await bench.http.get("/memory/documents", params={"user_id": "alice"})).json()["data"]
    assert {**listed, "change": "created", "redacted": []} == made
    (best, *_) = await passages(bench)
    text = "Drain the hoses before the first frost, or they burst."
    start = GUIDE.index(text)
    assert 0 < best.pop("score") <= 1
    assert best == {
        "object": "memory.passage", "document_id": made["id"], "name": "Greenhouse", "version": 1,
        "project_id": None, "headings": ["Greenhouse guide", "Winter"], "text": text, "start": start,
        "end": start + len(text),
    }  # fmt: skip


async def test_a_document_is_shown_with_its_outline_and_its_text_if_asked_but_no_secret(bench):
    made = await post(bench, f"{GUIDE}\n## Storage\n\nThe AWS key is {SECRET}.\n")
    assert made["redacted"] == ["Greenhouse guide › Storage"]
    path = f"/memory/documents/{made['id']}"
    shown = (await bench.http.get(path)).json()
    assert "content" not in shown
    outline = [(section["headings"][-1], section["redacted"]) for section in shown["outline"]]
    expected = [("Greenhouse guide", False), ("Figs", False), ("Winter", False), ("Storage", True)]
    assert outline == expected
    first, *_ = shown["outline"]
    content = (await bench.http.get(path, params={"include": "content"})).json()["content"]
    assert content[first["start"] : first["end"]] == "Water at dawn."
    assert (content.startswith(GUIDE), SECRET in content) == (True, False)


async def test_a_deleted_document_leaves_a_receipt_only(bench):
    made = await post(bench)
    await post(bench, user_id="bob")
    path = f"/memory/documents/{made['id']}"
    deleted = (await bench.http.delete(path)).json()
    assert (deleted["id"], deleted["deleted"], deleted["deleted_documents"]) == (made["id"], True, 1)
    assert await passages(bench) == []
    assert (await bench.http.get(path)).status_code == (await bench.http.delete(path)).status_code == 404
    (receipt,) = (await bench.http.get("/memory/receipts", params={"user_id": "alice"})).json()["data"]
    assert (receipt["id"], receipt["memory_id"]) == (deleted["receipt"], made["id"])
    await post(bench)
    forgotten = (await bench.http.delete("/memory", params={"user_id": "alice"})).json()
    assert forgotten["deleted_documents"] == 1
    assert (await passages(bench), await passages(bench, "bob") != []) == ([], True)


async def test_another_users_document_is_as_absent_as_an_unknown_one(bench):
    made = await post(bench)
    for caller in (Caller("default", user="bob"), Caller("other"), Caller("other", user="alice")):
        bench.call_as(caller)
        for method in ("GET", "DELETE"):
            foreign = await bench.http.request(method, f"/memory/documents/{made['id']}")
            missing = await bench.http.request(method, "/memory/documents/doc_none")
            assert foreign.status_code == missing.status_code == 404
            assert foreign.text.replace(made["id"], "") == missing.text.replace("doc_none", "")
        user = caller.user or "alice"
        listed = await bench.http.get("/memory/documents", params={"user_id": user})
        assert (listed.json()["data"], await passages(bench, user)) == ([], [])


async def test_a_malformed_document_is_refused_by_its_field(bench):
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"name": "  "}, "name"), ({"name": "a\u2028b"}, "name"), ({"name": "\u200b\u2060"}, "name"),
        ({"name": "\u202egnp.elif"}, "name"), ({"name": f"key {SECRET}"}, "name"),
        ({"content": "# Only a heading"}, "content"), ({"content": "a\0b"}, "content"),
        ({"format": "html"}, "format"), ({"version": 3}, "version"),
    ]  # fmt: skip
    for body, param in wrong:
        refused = await post(bench, **{"content": GUIDE, "status": 400, **body})
        assert refused["error"]["param"] == param
