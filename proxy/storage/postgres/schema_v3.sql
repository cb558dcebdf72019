-- Version 3. How memories change over time: see domain/changes.py.

ALTER TABLE memories ADD COLUMN pinned BIGINT NOT NULL DEFAULT 0;
ALTER TABLE memories ADD COLUMN core BIGINT NOT NULL DEFAULT 0;  -- pinned, or of a high weight: in the profile
ALTER TABLE memories ADD COLUMN uses BIGINT NOT NULL DEFAULT 0;  -- answers that used it
ALTER TABLE memories ADD COLUMN used_at DOUBLE PRECISION;
ALTER TABLE memories ADD COLUMN archived_by TEXT;
ALTER TABLE memories ADD COLUMN fades_at DOUBLE PRECISION;  -- when to check whether it has decayed; NULL: to be computed
UPDATE memories SET archived_by = 'user' WHERE archived = 1;
CREATE INDEX memories_core ON memories (owner, seq) WHERE core = 1;
CREATE INDEX memories_archived ON memories (owner, seq) WHERE archived = 1;
CREATE INDEX memories_fading ON memories (owner, fades_at) WHERE superseded_by IS NULL AND archived = 0;

-- One row a user: when the background pass is due, and the user's own settings.
CREATE TABLE evolution (
    owner        BIGINT PRIMARY KEY REFERENCES scopes (id) ON DELETE CASCADE,
    settings     TEXT NOT NULL DEFAULT '{}',  -- JSON object
    digest       TEXT NOT NULL DEFAULT '',    -- of the policy by which fades_at was computed
    due_at       DOUBLE PRECISION NOT NULL DEFAULT 0,
    last_at      DOUBLE PRECISION NOT NULL DEFAULT 0,
    leased_until DOUBLE PRECISION NOT NULL DEFAULT 0
);
CREATE INDEX evolution_due ON evolution (due_at);
INSERT INTO evolution (owner) SELECT id FROM scopes WHERE memories > 0 AND "user" IS NOT NULL;

-- Per memory and day (Unix seconds / 86400): in how many answers it was used, and in how many not.
CREATE TABLE memory_uses (
    owner  BIGINT NOT NULL REFERENCES scopes (id) ON DELETE CASCADE,
    day    BIGINT NOT NULL,
    memory BIGINT NOT NULL REFERENCES memories (seq) ON DELETE CASCADE,
    used   BIGINT NOT NULL DEFAULT 0,
    unused BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, day, memory)
);
CREATE INDEX memory_uses_memory ON memory_uses (memory);

ALTER TABLE exchanges ADD COLUMN judged BIGINT;  -- 0: whether its answer used its memories is to be judged
CREATE INDEX exchanges_unjudged ON exchanges (seq) WHERE judged = 0;
