"""Who is calling, and what that lets them touch."""
