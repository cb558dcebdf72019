"""Create the tables in a PostgreSQL database, or bring them up to date, step by step.

All in one transaction: a process that is killed leaves the database as it was. What is not ours is refused.
"""

from importlib import resources

import psycopg

from proxy.domain.errors import StoreUnavailable, UnfitStore

SCHEMA_VERSION = 1  # schema_v1.sql … are applied in order
_LOCK = 0x6D656D70  # "memp": processes that start together take turns
_OURS = ("application", "memory-proxy")  # a row of `meta`
_VERSION = "schema"  # another


def prepare(connection: "psycopg.Connection[tuple[object, ...]]", place: str) -> None:
    """Leave tables of the newest schema. Raises UnfitStore for a newer or a foreign database."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version = version_of(connection, place)
        for step in range(version + 1, SCHEMA_VERSION + 1):
            script = resources.files(__package__).joinpath(f"schema_v{step}.sql").read_text("utf-8")
            connection.execute(script.encode())
        if version < SCHEMA_VERSION:
            keep = "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            connection.execute(keep, _OURS)
            connection.execute(keep, (_VERSION, str(SCHEMA_VERSION)))


def version_of(connection: "psycopg.Connection[tuple[object, ...]]", place: str) -> int:
    """Return the version of the schema, 0 where there are no tables. Raises UnfitStore as `prepare` does."""
    found = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    ).fetchall()
    if not found:
        if connection.execute("SELECT current_schema()").fetchone() == (None,):
            raise StoreUnavailable(f"{place}: no schema of the search_path exists: create it, or grant USAGE")
        return 0
    known: dict[object, object] = {}
    if ("meta",) in found and ("scopes",) in found:
        known = dict(connection.execute("SELECT key, value FROM meta").fetchall())  # type: ignore[arg-type]
    if known.get(_OURS[0]) != _OURS[1]:
        raise UnfitStore(
            f"{place} holds tables of another program: name an empty database in storage.postgres_url, or a"
            " schema of its own (…?options=-csearch_path%3Dmemory_proxy, after CREATE SCHEMA memory_proxy)"
        )
    version = int(str(known[_VERSION]))
    if version > SCHEMA_VERSION:
        raise UnfitStore(
            f"{place} was made by a newer version of memory-proxy: schema {version}, this one knows"
            f" {SCHEMA_VERSION}. Update all replicas"
        )
    return version
