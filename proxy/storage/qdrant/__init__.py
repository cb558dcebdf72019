"""The index of a fleet's memories in Qdrant: a stores/vector_index.py. It holds no text."""
