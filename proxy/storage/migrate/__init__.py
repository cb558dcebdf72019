"""Copying everything from another kind of store into the SQL store."""
