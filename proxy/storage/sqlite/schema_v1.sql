-- Version 1. Times are Unix seconds. Text columns never hold what the write gate has not passed.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- One row a user. It outlives a forget: the generation is what stops late writers. A row without a name is
-- what a user had before all of it was forgotten; it goes when the last of that is erased.
CREATE TABLE scopes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant     TEXT,
    user       TEXT,
    generation INTEGER NOT NULL DEFAULT 0,  -- rises with every forget
    portioned  INTEGER NOT NULL DEFAULT -1, -- the generation of the last forget that went in portions
    version    INTEGER NOT NULL DEFAULT 0,  -- rises with every change of what a search could return
    served     INTEGER NOT NULL DEFAULT 0,  -- rank of the last claimed job: fairness between users
    memories      INTEGER NOT NULL DEFAULT 0,  -- how many rows of `memories`, kept by the triggers below
    content_bytes INTEGER NOT NULL DEFAULT 0,  -- of their contents, in UTF-8
    UNIQUE (tenant, user)
) STRICT;
CREATE INDEX scopes_served ON scopes (served);

CREATE TABLE memories (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: cursors and indexes rely on it
    id            TEXT NOT NULL,
    owner         INTEGER NOT NULL REFERENCES scopes (id),
    project       TEXT,
    type          TEXT NOT NULL,
    content       TEXT NOT NULL,
    digest        BLOB NOT NULL,     -- of the normalised content: equal means the same statement
    source        TEXT NOT NULL,
    created_at    REAL NOT NULL,
    updated_at    REAL NOT NULL,
    valid_from    REAL NOT NULL,
    valid_to      REAL,
    superseded_by TEXT,
    expires_at    REAL,
    archived      INTEGER NOT NULL DEFAULT 0,
    importance    REAL NOT NULL,
    weight        REAL NOT NULL,
    confidence    REAL NOT NULL,
    tags          TEXT NOT NULL,     -- JSON array
    access_count  INTEGER NOT NULL DEFAULT 0,
    last_accessed REAL,
    changed       INTEGER NOT NULL,  -- the user's version of the last change: what an index has to read again
    written       INTEGER NOT NULL   -- the same of the last change of content, type or project
) STRICT;
CREATE UNIQUE INDEX memories_id ON memories (id, owner);
CREATE UNIQUE INDEX memories_said_once ON memories (owner, coalesce(project, ''), type, digest)
    WHERE superseded_by IS NULL AND archived = 0;
CREATE INDEX memories_owner ON memories (owner);
CREATE INDEX memories_changed ON memories (owner, changed);
CREATE INDEX memories_superseded ON memories (superseded_by) WHERE superseded_by IS NOT NULL;
-- Who makes room first at the quota: see quota.py, whose queries must repeat these expressions.
CREATE INDEX memories_weakest ON memories (
    owner, (superseded_by IS NOT NULL OR archived), (importance * weight * confidence),
    (coalesce(last_accessed, created_at))
);
CREATE INDEX memories_expiring ON memories (owner, expires_at) WHERE expires_at IS NOT NULL;

-- The quota asks at every write how much there is; triggers update the counters with every write.
CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    UPDATE scopes SET memories = memories + 1,
        content_bytes = content_bytes + length(CAST(new.content AS BLOB)) WHERE id = new.owner;
END;
CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
    UPDATE scopes SET memories = memories - 1,
        content_bytes = content_bytes - length(CAST(old.content AS BLOB)) WHERE id = old.owner;
END;
CREATE TRIGGER memories_rewritten AFTER UPDATE OF content ON memories BEGIN
    UPDATE scopes SET content_bytes = content_bytes - length(CAST(old.content AS BLOB))
        + length(CAST(new.content AS BLOB)) WHERE id = new.owner;
END;

-- Memories erased without a forget, for the quota: an index cannot see in `memories` that they are gone.
CREATE TABLE evicted (
    owner   INTEGER NOT NULL REFERENCES scopes (id),
    version INTEGER NOT NULL,        -- the user's, when it happened
    memory  INTEGER NOT NULL,        -- its seq
    PRIMARY KEY (owner, version, memory)
) STRICT, WITHOUT ROWID;

-- Apart from the memories, so that counting an access does not rewrite 1.5 kB.
CREATE TABLE vectors (
    memory    INTEGER PRIMARY KEY REFERENCES memories (seq) ON DELETE CASCADE,
    embedding BLOB,                  -- float32, unit length; NULL: found by its words only
    terms     BLOB NOT NULL          -- int64 hash of every term, in order
) STRICT;

CREATE TABLE evidence (
    id          INTEGER PRIMARY KEY,
    memory      INTEGER NOT NULL REFERENCES memories (seq) ON DELETE CASCADE,
    session_id  TEXT NOT NULL,
    exchange_id TEXT NOT NULL,
    span        TEXT NOT NULL
) STRICT;
CREATE INDEX evidence_memory ON evidence (memory);
CREATE INDEX evidence_exchange ON evidence (exchange_id);

CREATE TABLE events (
    id      INTEGER PRIMARY KEY,
    memory  INTEGER NOT NULL REFERENCES memories (seq) ON DELETE CASCADE,
    at      REAL NOT NULL,
    action  TEXT NOT NULL,
    by      TEXT NOT NULL,
    content TEXT NOT NULL
) STRICT;
CREATE INDEX events_memory ON events (memory);

-- A session belongs to one project: what is extracted from it goes there.
CREATE TABLE sessions (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    owner   INTEGER NOT NULL REFERENCES scopes (id),
    project TEXT,
    name    TEXT NOT NULL,
    last_at REAL NOT NULL,
    ended   INTEGER NOT NULL DEFAULT 0, -- 1: its client said so; what is answered after that is due at once
    stateful     INTEGER NOT NULL DEFAULT 0,  -- 1: later requests may need its state
    retold       INTEGER NOT NULL DEFAULT 0,  -- 1: its requests hold their history
    unsummarised INTEGER NOT NULL DEFAULT 0   -- exchanges answered since it was last summed up
) STRICT;
CREATE UNIQUE INDEX sessions_name ON sessions (owner, name, coalesce(project, ''));
CREATE INDEX sessions_unsummarised ON sessions (last_at) WHERE unsummarised > 0;

CREATE TABLE jobs (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    session      INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    owner        INTEGER NOT NULL REFERENCES scopes (id),
    upto         INTEGER NOT NULL,
    lane         INTEGER NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('queued', 'running', 'waiting', 'dead')),
    attempts     INTEGER NOT NULL DEFAULT 0,
    due_at       REAL NOT NULL DEFAULT 0,
    leased_until REAL,
    instance     TEXT,               -- who runs it
    created_at   REAL NOT NULL,
    reason       TEXT NOT NULL DEFAULT '',
    closing      INTEGER NOT NULL DEFAULT 0  -- 1: the session has come to its end
) STRICT;
CREATE UNIQUE INDEX jobs_one_pending ON jobs (session) WHERE state IN ('queued', 'waiting');
CREATE UNIQUE INDEX jobs_one_running ON jobs (owner) WHERE state = 'running';
CREATE INDEX jobs_session ON jobs (session);
CREATE INDEX jobs_due ON jobs (state, lane);

CREATE TABLE exchanges (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    key        TEXT NOT NULL,
    session    INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    generation INTEGER NOT NULL,
    model      TEXT NOT NULL,
    said       TEXT NOT NULL,
    answer     TEXT NOT NULL DEFAULT '',
    recalled   TEXT NOT NULL DEFAULT '[]', -- ids of the memories that the answer was given with
    at         REAL NOT NULL,
    state      TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done')),
    whole      INTEGER NOT NULL DEFAULT 0,
    explicit   INTEGER NOT NULL,
    personal   INTEGER NOT NULL,
    instance   TEXT NOT NULL,        -- who waits for the answer
    holders    INTEGER NOT NULL DEFAULT 1,  -- requests with this key under way
    -- old: about to be removed by retention, which is not a forget
    extraction TEXT NOT NULL DEFAULT 'pending' CHECK (extraction IN ('pending', 'done', 'dead', 'old')),
    job        INTEGER REFERENCES jobs (id) ON DELETE SET NULL  -- the job that has read it
) STRICT;
CREATE UNIQUE INDEX exchanges_key ON exchanges (session, key);
CREATE INDEX exchanges_open ON exchanges (instance) WHERE state = 'open';
CREATE INDEX exchanges_pending ON exchanges (session, seq) WHERE extraction = 'pending';
CREATE INDEX exchanges_session ON exchanges (session, seq);
CREATE INDEX exchanges_job ON exchanges (job) WHERE job IS NOT NULL;
CREATE INDEX exchanges_read ON exchanges (at) WHERE extraction = 'done';  -- what retention removes

-- What the user's standing instructions in a session were, in the order in which they were said: the last of
-- a slot holds. They outlive the exchange that they were said in when retention removes it.
CREATE TABLE anchors (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    session     INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    exchange    INTEGER NOT NULL,    -- its seq, and
    exchange_id TEXT NOT NULL,
    slot        TEXT NOT NULL,
    content     TEXT NOT NULL,
    holds       INTEGER NOT NULL,    -- 0: it ends what the slot, or the content, held
    at          REAL NOT NULL
) STRICT;
CREATE INDEX anchors_session ON anchors (session, seq);
CREATE INDEX anchors_exchange ON anchors (exchange);
CREATE INDEX anchors_exchange_id ON anchors (exchange_id);

-- What stands for a session's exchanges up to one of them, and the marks of those that it may stand for.
CREATE TABLE states (
    session INTEGER PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    upto    INTEGER NOT NULL,
    content TEXT NOT NULL,           -- JSON object
    at      REAL NOT NULL            -- of the last exchange
) STRICT;
CREATE TABLE marks (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    mark    TEXT NOT NULL,
    PRIMARY KEY (session, mark)
) STRICT, WITHOUT ROWID;

-- A forget of an exchange also forgets what was made of it.
CREATE TRIGGER exchanges_forgotten AFTER DELETE ON exchanges WHEN old.extraction <> 'old' BEGIN
    DELETE FROM anchors WHERE exchange = old.seq;
    DELETE FROM states WHERE session = old.session;
    DELETE FROM marks WHERE session = old.session;
END;
CREATE TRIGGER answers_forgotten AFTER UPDATE OF answer ON exchanges
WHEN old.answer <> '' AND new.answer <> old.answer BEGIN
    DELETE FROM states WHERE session = old.session;
    DELETE FROM marks WHERE session = old.session;
END;
-- A memory's exchange may be gone already; what was an instruction in it goes with the memory then.
CREATE TRIGGER sources_forgotten BEFORE DELETE ON memories BEGIN
    DELETE FROM anchors WHERE exchange_id IN (SELECT exchange_id FROM evidence WHERE memory = old.seq)
    AND session IN (SELECT id FROM sessions WHERE owner = old.owner)
    AND NOT EXISTS (SELECT 1 FROM exchanges WHERE seq = anchors.exchange);
END;

-- Candidates that wait for their owner's judgement. They are not memories: nothing searches here.
CREATE TABLE quarantine (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL,
    owner       INTEGER NOT NULL REFERENCES scopes (id),
    project     TEXT,
    type        TEXT NOT NULL,
    content     TEXT NOT NULL,
    reason      TEXT NOT NULL,
    source      TEXT NOT NULL,
    confidence  REAL NOT NULL,
    importance  REAL NOT NULL,
    tags        TEXT NOT NULL,       -- JSON array
    replaces    TEXT,
    observed_at REAL NOT NULL,
    expires_at  REAL,
    session_id  TEXT NOT NULL DEFAULT '',
    exchange_id TEXT NOT NULL DEFAULT '',
    span        TEXT NOT NULL DEFAULT '',
    at          REAL NOT NULL
) STRICT;
CREATE UNIQUE INDEX quarantine_id ON quarantine (owner, id);

-- What was forgotten: never what it said.
CREATE TABLE receipts (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    id        TEXT NOT NULL UNIQUE,
    owner     INTEGER NOT NULL REFERENCES scopes (id),
    project   TEXT,
    type      TEXT,
    memory_id TEXT,
    by        TEXT NOT NULL,
    at        REAL NOT NULL,
    counts    TEXT NOT NULL          -- JSON object
) STRICT;
CREATE INDEX receipts_owner ON receipts (owner, seq);

-- Large forgets under way: what one covers is hidden at once and goes in portions; see forgetting/orders.py.
CREATE TABLE forgets (
    receipt   INTEGER PRIMARY KEY REFERENCES receipts (seq),
    owner     INTEGER NOT NULL REFERENCES scopes (id),  -- whose rows go
    project   TEXT,
    type      TEXT,
    types     TEXT,                  -- JSON array: those that `type` stands for
    memory_id TEXT,
    bounds    TEXT NOT NULL,         -- JSON object: the last row of each table that it covers
    instance  TEXT NOT NULL          -- the process that is at it
) STRICT;
CREATE INDEX forgets_owner ON forgets (owner);

-- Nothing of a user is read by a model while something of it is being forgotten: what is left is offered again.
CREATE TRIGGER jobs_wait_for_forgets BEFORE INSERT ON jobs
WHEN EXISTS (SELECT 1 FROM forgets WHERE owner = new.owner) BEGIN
    SELECT RAISE (IGNORE);
END;

-- The proxy's own API keys. The key itself is kept nowhere.
CREATE TABLE keys (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    digest       BLOB NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    tenant       TEXT NOT NULL,
    user         TEXT,
    rights       TEXT NOT NULL,      -- JSON array
    upstream_key BLOB,               -- sealed with the key
    created_at   REAL NOT NULL,
    revoked_at   REAL
) STRICT;

-- Which session a response was made in, also if an upstream stores it.
CREATE TABLE responses (
    id      TEXT NOT NULL,
    owner   INTEGER NOT NULL REFERENCES scopes (id),
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    PRIMARY KEY (owner, id)
) STRICT;
CREATE INDEX responses_session ON responses (session);

-- Responses that we keep for their owner. The session by its name: retention may have removed its row.
CREATE TABLE stored_responses (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL,
    owner           INTEGER NOT NULL REFERENCES scopes (id),
    project         TEXT,
    session         TEXT NOT NULL,
    previous_id     TEXT,
    conversation_id TEXT,
    created_at      REAL NOT NULL,
    expires_at      REAL,
    recalled        TEXT NOT NULL,   -- ids of the memories that the answer was given with
    response        BLOB,            -- NULL: deleted by its owner; kept so that nothing stores it again
    input_items     BLOB             -- the large columns last: a walk along a chain does not read them
) STRICT;
CREATE UNIQUE INDEX stored_responses_id ON stored_responses (owner, id);
CREATE INDEX stored_responses_next ON stored_responses (owner, previous_id) WHERE previous_id IS NOT NULL;
CREATE INDEX stored_responses_session ON stored_responses (owner, session);
CREATE INDEX stored_responses_expiry ON stored_responses (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE conversations (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL,
    owner      INTEGER NOT NULL REFERENCES scopes (id),
    project    TEXT,
    metadata   BLOB NOT NULL,
    created_at REAL NOT NULL
) STRICT;
CREATE UNIQUE INDEX conversations_id ON conversations (owner, id);

CREATE TABLE conversation_items (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of arrival
    conversation INTEGER NOT NULL REFERENCES conversations (seq) ON DELETE CASCADE,
    id           TEXT NOT NULL,
    project      TEXT,               -- of who added it
    session      TEXT,               -- in which it was said; NULL: added by the client itself
    item         BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX conversation_items_id ON conversation_items (conversation, id);
CREATE INDEX conversation_items_order ON conversation_items (conversation, seq);
CREATE INDEX conversation_items_session ON conversation_items (session, conversation) WHERE session IS NOT NULL;
