"""What is kept of a session as a whole: standing instructions, its state, its summary."""
