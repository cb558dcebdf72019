-- Version 12. The past in order of time: a user's events, and memories by when they began to be true.

ALTER TABLE events ADD COLUMN owner INTEGER NOT NULL DEFAULT 0;
UPDATE events SET owner = (SELECT owner FROM memories WHERE seq = events.memory);
CREATE INDEX events_time ON events (owner, at, id);
CREATE INDEX memories_valid ON memories (owner, valid_from, seq);
