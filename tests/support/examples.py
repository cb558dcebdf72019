"""How many examples of a property are tried."""

from hypothesis import settings

_SUITE = 100  # hypothesis' default, which the suite's own profile leaves as it is


def examples(count: int) -> int:
    """Return the count, or as many times more as the profile wants (tests/conftest.py)."""
    return max(1, count * settings.default.max_examples // _SUITE)
