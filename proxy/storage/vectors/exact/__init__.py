"""Exact search in arrays of one user's own: what the stores that keep vectors themselves have in common."""
