"""Implementations of the ports: where memories live, and the local models."""

from collections.abc import Callable

from proxy.domain.errors import StoreError

Report = Callable[[str, int, int], None]
"""Called with the current step, how much of it is done and how much there is."""


class Refused(StoreError):
    """A migration was not done. The message says why, and what to do."""
