"""The index of a fleet's memories in Qdrant: what stores/redis asks for in indexing.py. It holds no text."""
