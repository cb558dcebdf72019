"""Models that run inside the process: the sentence embedder, the reranker and the token counter.

`load.load_embedder` finds weights and returns an embedder or the reasons why there is none;
`tokens.Tokens` counts tokens exactly where the tables are installed and estimates elsewhere.
Nothing here needs torch, and nothing here touches the network unless the operator allowed a download.
"""
