"""The write path: when to extract, how to extract, what to admit."""
