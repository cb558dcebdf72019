-- Version 6. Exchanges that wait for what the client's tools return: they are read once the end of the answer is here,
-- or has not come for a while.

ALTER TABLE exchanges ADD COLUMN at_work INTEGER NOT NULL DEFAULT 0;
