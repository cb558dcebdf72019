"""Recall: from a question to the memories that belong to it, best first."""
