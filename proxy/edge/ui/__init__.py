"""The page at /ui: what is remembered, for the one it belongs to."""
