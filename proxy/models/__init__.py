"""Models that run inside the process: the embedder, the heads of its encoder, the reranker, token counts."""
