-- Version 15. The people, places, projects and things that memories name: see sql/entities.py.

CREATE TABLE entities (
    seq   INTEGER PRIMARY KEY AUTOINCREMENT,
    id    TEXT NOT NULL,
    owner INTEGER NOT NULL REFERENCES scopes (id)
) STRICT;
CREATE UNIQUE INDEX entities_id ON entities (id, owner);
CREATE INDEX entities_owner ON entities (owner, seq);

-- What an entity is called is read from here, so that nothing of a forgotten memory remains in it.
CREATE TABLE mentions (
    memory INTEGER NOT NULL REFERENCES memories (seq) ON DELETE CASCADE,
    key    TEXT NOT NULL,            -- of the name: what all its spellings have in common
    owner  INTEGER NOT NULL,
    entity INTEGER NOT NULL REFERENCES entities (seq) ON DELETE CASCADE,
    name   TEXT NOT NULL,
    kind   TEXT NOT NULL,
    unsure INTEGER NOT NULL,         -- 1: a word at the start of a sentence, which may be no name
    PRIMARY KEY (memory, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX mentions_key ON mentions (owner, key);
CREATE INDEX mentions_entity ON mentions (entity, memory);
CREATE TRIGGER mentions_removed AFTER DELETE ON mentions
WHEN NOT EXISTS (SELECT 1 FROM mentions WHERE entity = old.entity) BEGIN
    DELETE FROM entities WHERE seq = old.entity;
END;

-- Memories whose names were not read yet.
CREATE TABLE unnamed (
    memory INTEGER PRIMARY KEY REFERENCES memories (seq) ON DELETE CASCADE
) STRICT;
INSERT INTO unnamed SELECT seq FROM memories;
