"""Implementations of the ports: where memories live, and the local models."""

from collections.abc import Callable

Report = Callable[[str, int, int], None]
"""Called with the current step, how much of it is done and how much there is."""
