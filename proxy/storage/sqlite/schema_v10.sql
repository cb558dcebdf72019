-- Version 10. What the relevance head reads of a memory, computed when it is stored (judging.Judge.readings).

ALTER TABLE vectors ADD COLUMN reading BLOB;
