-- Version 9. The index of who makes room first at the quota, by an expression that other databases know, too.

DROP INDEX memories_weakest;
CREATE INDEX memories_weakest ON memories (
    owner, (CASE WHEN superseded_by IS NOT NULL OR archived = 1 THEN 1 ELSE 0 END),
    (importance * weight * confidence), (coalesce(last_accessed, created_at))
);
