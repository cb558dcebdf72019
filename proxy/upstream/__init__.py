"""The way to the model and back: requests out, answers relayed, and our own LLM calls."""
