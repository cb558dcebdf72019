-- Version 14. Memories made from others, contradictions, and what background steps have considered: see
-- sql/derivation.py.

ALTER TABLE memories ADD COLUMN sources TEXT NOT NULL DEFAULT '[]';  -- JSON array: ids of what it was made from
CREATE INDEX memories_derived ON memories (owner) WHERE sources <> '[]';

-- Two current memories that cannot both hold.
CREATE TABLE contradictions (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    id       TEXT NOT NULL,
    owner    INTEGER NOT NULL REFERENCES scopes (id) ON DELETE CASCADE,
    older    INTEGER NOT NULL REFERENCES memories (seq) ON DELETE CASCADE,
    newer    INTEGER NOT NULL REFERENCES memories (seq) ON DELETE CASCADE,
    score    REAL NOT NULL,
    found_at REAL NOT NULL
) STRICT;
CREATE UNIQUE INDEX contradictions_pair ON contradictions (older, newer);
CREATE UNIQUE INDEX contradictions_id ON contradictions (owner, id);
CREATE INDEX contradictions_newer ON contradictions (newer);

-- Which memories a step has considered: none is considered twice unless it is rewritten.
CREATE TABLE reviews (
    memory INTEGER NOT NULL REFERENCES memories (seq) ON DELETE CASCADE,
    step   TEXT NOT NULL,
    batch  TEXT NOT NULL,            -- equal for those considered together, as by one LLM call
    at     REAL NOT NULL,
    PRIMARY KEY (memory, step)
) STRICT, WITHOUT ROWID;
-- Up to which version (memories.changed) a step has considered all of a user's memories.
CREATE TABLE review_cursors (
    owner INTEGER NOT NULL REFERENCES scopes (id) ON DELETE CASCADE,
    step  TEXT NOT NULL,
    upto  INTEGER NOT NULL,
    PRIMARY KEY (owner, step)
) STRICT, WITHOUT ROWID;
