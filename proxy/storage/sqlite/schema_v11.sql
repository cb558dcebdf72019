-- Version 11. An index of vectors in another server: what it has not been sent yet (sql/external_index.py).

CREATE TABLE vector_targets (
    name         TEXT PRIMARY KEY,           -- one row while there is an index, none without
    generations  TEXT NOT NULL DEFAULT '[]', -- of vectors, that have a collection
    rebuilding   INTEGER NOT NULL DEFAULT 0,
    holder       TEXT NOT NULL DEFAULT '',   -- the process that sends
    leased_until REAL NOT NULL DEFAULT 0
);
-- Memories that were written, changed or erased. No reference: the memory may have been erased.
CREATE TABLE vector_outbox (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    owner  INTEGER NOT NULL,
    memory INTEGER NOT NULL
);
CREATE INDEX vector_outbox_owner ON vector_outbox (owner, memory);
CREATE INDEX vector_outbox_memory ON vector_outbox (memory);

CREATE TRIGGER vectors_added AFTER INSERT ON vectors WHEN EXISTS (SELECT 1 FROM vector_targets) BEGIN
    INSERT INTO vector_outbox (owner, memory) SELECT owner, seq FROM memories WHERE seq = new.memory;
END;
CREATE TRIGGER vectors_changed AFTER UPDATE OF embedding, terms, generation ON vectors
WHEN EXISTS (SELECT 1 FROM vector_targets) BEGIN
    INSERT INTO vector_outbox (owner, memory) SELECT owner, seq FROM memories WHERE seq = new.memory;
END;
CREATE TRIGGER memories_changed_for_index AFTER UPDATE OF changed ON memories
WHEN EXISTS (SELECT 1 FROM vector_targets) BEGIN
    INSERT INTO vector_outbox (owner, memory) VALUES (new.owner, new.seq);
END;
CREATE TRIGGER memories_removed_from_index AFTER DELETE ON memories
WHEN EXISTS (SELECT 1 FROM vector_targets) BEGIN
    INSERT INTO vector_outbox (owner, memory) VALUES (old.owner, old.seq);
END;
