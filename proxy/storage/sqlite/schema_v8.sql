-- Version 8. Conversations expire: when something was last added to each. NULL: it does not expire (the server's own
-- key, in a place of its own). The lifetime of those that are here already begins with this version.

ALTER TABLE conversations ADD COLUMN used_at REAL;
UPDATE conversations SET used_at = CAST(strftime('%s', 'now') AS REAL)
    WHERE owner NOT IN (SELECT id FROM scopes WHERE tenant = char(31) || 'seals');
CREATE INDEX conversations_used ON conversations (used_at) WHERE used_at IS NOT NULL;
