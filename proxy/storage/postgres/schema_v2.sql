-- Version 2: SQLite's version 12.

ALTER TABLE events ADD COLUMN owner BIGINT NOT NULL DEFAULT 0;
UPDATE events SET owner = (SELECT owner FROM memories WHERE seq = events.memory);
CREATE INDEX events_time ON events (owner, at, id);
CREATE INDEX memories_valid ON memories (owner, valid_from, seq);
