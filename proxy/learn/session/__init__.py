"""Session-level data: standing instructions, the session's state, its summary."""
