"""The read path: from a turn to the block of memories that is injected. Start at `prepare`."""
