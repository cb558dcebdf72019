"""What a Qdrant server is asked, over HTTP: local mode has no tenants, indexes, replicas or quantization."""

import numpy as np
import pytest

from proxy.domain.core import Search
from proxy.storage.exact_index import pack
from proxy.storage.qdrant import Collection, QdrantIndex, connect
from proxy.storage.sql.vectors import Point
from tests.support.upstream import ScriptedUpstream

VECTOR = np.array([1, 0, 0], np.float32).tobytes()
POINT = Point(5, 1, "semantic", None, 9.5, VECTOR, pack(["tea", "green"]))
QUERY = Search(VECTOR, ("tea",), limit=10, types=frozenset({"semantic"}), now=5.0)


async def answer(exchange):
    """Answer as a server without collections."""
    path = exchange.request.target.decode()
    result = {"collections": []} if path == "/collections" else True
    if "/points" in path or "/index" in path:
        result = {"operation_id": 1, "status": "completed"}
    if path.endswith("/query/batch"):
        result = [{"points": [{"id": id_, "version": 1, "score": 0.5}]} for id_ in (7, 8)]
    await exchange.json({"result": result, "status": "ok", "time": 0.1})


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
async def test_a_collection_has_the_user_as_tenant_and_what_the_operator_chose():
    chosen = Collection(
        prefix="ours", quantization="scalar", replication_factor=3, write_consistency_factor=2, on_disk=True
    )
    async with ScriptedUpstream(answer) as server:
        client = connect(server.origin, "secret", prefer_grpc=False, timeout_s=10)
        index = QdrantIndex(client, chosen, search_timeout_s=10)
        await index.upsert(0, [POINT], 3)
        assert await index.search(1, "apollo", QUERY, compared=(0,), within=[0]) == [7, 8]
        await index.delete([5], [0])
        await index.close()
    assert {each.header(b"api-key") for each in server.requests} == {b"secret"}
    asked = [
        (each.method.decode(), each.target.decode(), each.json if each.body else None)
        for each in server.requests
    ]
    by_path = {(method, path.split("?")[0]): body for method, path, body in asked}
    made = by_path["PUT", "/collections/ours_0"]
    assert (made["replication_factor"], made["write_consistency_factor"]) == (3, 2)
    assert made["vectors"]["dense"] == {"size": 3, "distance": "Cosine", "on_disk": True}
    assert made["quantization_config"]["scalar"]["type"] == "int8"
    assert made["sparse_vectors"]["words"]["modifier"] == "idf"
    indexed = [body for _, path, body in asked if "/index" in path]
    assert indexed[0] == {"field_name": "owner", "field_schema": {"type": "keyword", "is_tenant": True}}
    assert {body["field_name"] for body in indexed} == {"owner", "project", "type", "expires"}
    (sent,) = by_path["PUT", "/collections/ours_0/points"]["points"]
    assert sent["payload"] == {"owner": "1", "type": "semantic", "expires": 9.5}
    for search in by_path["POST", "/collections/ours_0/points/query/batch"]["searches"]:
        assert {"key": "owner", "match": {"value": "1"}} in search["filter"]["must"]
    assert by_path["POST", "/collections/ours_0/points/delete"] == {"points": [5]}
