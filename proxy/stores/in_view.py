"""What an answer was given with in view, as `recalled` names it: memories and documents by their ids, and
what was forgotten since."""

FORGOTTEN = "(forgotten)"
"""Stands in `recalled` for what was forgotten, which nobody finds any more: an answer that is on its way
is not kept then."""
