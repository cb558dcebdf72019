"""The vectors and words of memories: exact search in arrays, and candidates from Qdrant."""
