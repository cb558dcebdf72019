"""Parse times as people type them: a date, with or without an hour, a duration from now, or Unix seconds."""

import argparse
import math
import re
import time
from datetime import datetime

NEVER = "never"
WAYS = "a date (2026-12-31), with a time (2026-12-31T18:30), how long (12h, 30d, 2w), Unix seconds, never"
_UNITS_S = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_HOW_LONG = re.compile(rf"(\d{{1,6}})([{''.join(_UNITS_S)}])")


def expiry(text: str) -> float | str:
    """Return the Unix seconds that the text names, or NEVER.

    A date alone is its midnight; without a zone, times are those of this machine, as they are shown. Raises
    ArgumentTypeError.
    """
    if text == NEVER:
        return text
    if how_long := _HOW_LONG.fullmatch(text):
        return math.floor(time.time()) + int(how_long[1]) * _UNITS_S[how_long[2]]
    for read in (float, _of_calendar):
        try:
            seconds = read(text)
        except (ValueError, OverflowError):  # the year 1 is no time for some machines
            continue
        if math.isfinite(seconds):
            return seconds
    raise argparse.ArgumentTypeError(WAYS)


def _of_calendar(text: str) -> float:
    return datetime.fromisoformat(text.upper()).timestamp()
