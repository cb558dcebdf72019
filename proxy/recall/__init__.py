"""The read path: from a turn to the block of memories that goes with it. Start at `prepare`."""
