-- Version 5. Which answer a response is of: what continues it belongs to that one, and to no other of the session.
-- NULL: written down by an earlier version.

ALTER TABLE responses ADD COLUMN exchange TEXT;
