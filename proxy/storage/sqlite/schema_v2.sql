-- Version 2. A vector says which model made it, so that another one can take over while requests are served:
-- vectors of two models are never compared.

CREATE TABLE embeddings (
    generation INTEGER PRIMARY KEY,  -- the last one is the collection's
    name       TEXT NOT NULL,
    dimension  INTEGER NOT NULL
) STRICT;
INSERT INTO embeddings
    SELECT 0, json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM meta WHERE key = 'embedding_model';
DELETE FROM meta WHERE key = 'embedding_model';

-- -1: no model was at hand.
ALTER TABLE vectors ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
