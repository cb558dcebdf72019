"""What is logged, for tests that read it."""

from collections.abc import Callable
from typing import Any

from proxy import telemetry


def recorded(monkeypatch, shown):
    """Return the list that whatever is logged from now on gets into: each event, and `shown` of its facts."""
    lines: list[tuple[str, Any]] = []

    class Log:
        def __getattr__(self, level: str) -> Callable[..., None]:
            return lambda event, **facts: lines.append((event, shown(facts)))

    monkeypatch.setattr(telemetry, "log", Log())
    return lines
