-- Version 7. The user's time zone: the last known one, and the one in which each exchange was said. And when that
-- was, for the exchanges of an old conversation.

ALTER TABLE scopes ADD COLUMN timezone TEXT;
ALTER TABLE exchanges ADD COLUMN timezone TEXT NOT NULL DEFAULT 'UTC';
ALTER TABLE exchanges ADD COLUMN dated REAL;
