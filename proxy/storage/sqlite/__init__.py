"""The embedded store: one SQLite file in the data directory."""

from proxy.storage.sqlite.stores import SqliteStores as SqliteStores
