"""The PostgreSQL driver: connections, transactions, placeholders, and the SQL that differs."""

from proxy.storage.postgres.stores import PostgresStores as PostgresStores
