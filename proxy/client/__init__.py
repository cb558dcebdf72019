"""`memory-proxy memory …`: show and change the memories of a running proxy over its HTTP API."""
