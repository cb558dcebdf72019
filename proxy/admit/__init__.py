"""The write gate: from candidates to memories. Decides what is new, what is already known, and what
replaces what.
"""
