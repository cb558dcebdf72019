"""Every rule of storing, superseding, forgetting and queueing, in SQL that SQLite and PostgreSQL run."""
