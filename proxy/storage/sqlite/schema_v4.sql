-- Version 4. What is asked for all users at once, every few seconds, or with every answer, is found by an index:
-- without these its time grows with users that have nothing to do with it.

-- Jobs that wait for a credential are woken by each answer to their user; a user's row that goes asks for jobs, too.
CREATE INDEX jobs_owner ON jobs (owner, state);

-- What retention looks for among all memories.
CREATE INDEX memories_lapsing ON memories (expires_at) WHERE expires_at IS NOT NULL;

-- Of a memory that is forgotten, the summary of its session is looked for.
CREATE INDEX memories_summaries ON memories (owner) WHERE source = 'summary';
