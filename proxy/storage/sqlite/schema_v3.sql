-- Version 3. Knowledge documents, cut into passages.

-- Rises with every change of what a search of the user's documents could return; 0: there never were any.
ALTER TABLE scopes ADD COLUMN documents INTEGER NOT NULL DEFAULT 0;

-- A new version is a new row under the old id: its number shows what came after a forget began.
CREATE TABLE documents (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL,
    owner      INTEGER NOT NULL REFERENCES scopes (id),
    project    TEXT,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    digest     BLOB NOT NULL,        -- of the text as it is kept
    characters INTEGER NOT NULL,
    sections   INTEGER NOT NULL,
    passages   INTEGER NOT NULL,
    created_at REAL NOT NULL,        -- of the first version
    updated_at REAL NOT NULL,
    doomed     INTEGER NOT NULL DEFAULT 0  -- 1: being forgotten, and hidden from everybody
) STRICT;
CREATE UNIQUE INDEX documents_name ON documents (owner, coalesce(project, ''), name) WHERE doomed = 0;
CREATE INDEX documents_id ON documents (id);
CREATE INDEX documents_owner ON documents (owner, seq);

CREATE TABLE passages (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: makers of vectors rely on it
    document   INTEGER NOT NULL REFERENCES documents (seq) ON DELETE CASCADE,
    section    INTEGER NOT NULL,
    headings   TEXT NOT NULL,        -- JSON array
    start      INTEGER NOT NULL,
    lead       INTEGER NOT NULL,
    tile       TEXT NOT NULL,
    terms      BLOB NOT NULL,        -- int64 hash of every term, in order
    generation INTEGER NOT NULL,     -- of the model that made the vector, -1: none yet
    embedding  BLOB                  -- float32, unit length; NULL: none yet, or nothing that the model understands
) STRICT;
CREATE INDEX passages_document ON passages (document, generation);
CREATE INDEX passages_generation ON passages (generation);

CREATE TRIGGER documents_added AFTER INSERT ON documents BEGIN
    UPDATE scopes SET documents = documents + 1 WHERE id = new.owner;
END;
CREATE TRIGGER documents_removed AFTER DELETE ON documents BEGIN
    UPDATE scopes SET documents = documents + 1 WHERE id = old.owner;
END;
CREATE TRIGGER documents_hidden AFTER UPDATE OF doomed ON documents BEGIN
    UPDATE scopes SET documents = documents + 1 WHERE id = new.owner;
END;
