"""Rate limits, without I/O: how often one may ask, and whether one may now.

The generic cell rate algorithm (ITU-T I.371), which needs one time for each subject: when the subject would
be back at nothing if it made no further request. Each request moves that time on by `interval_s`; a request
that would move it further than a burst ahead of now is refused, and moves nothing.
"""

from dataclasses import dataclass

# A hair of tolerance: the sum of n intervals is not exactly n times one.
TOLERANCE = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_minute` requests over time, `burst` at once."""

    per_minute: int
    burst: int

    @classmethod
    def of(cls, per_minute: int, burst: int) -> "Rate | None":
        """Return the rate as configured: no limit for 0, and a burst of a minute's worth for burst 0."""
        return cls(per_minute, burst or per_minute) if per_minute else None

    @property
    def interval_s(self) -> float:
        return 60 / self.per_minute

    @property
    def most_s(self) -> float:
        """How far ahead of now a burst is."""
        return self.interval_s * self.burst


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the request may pass, how many more could follow at once, when all could again, and, of one
    refused, when it may come again."""

    passes: bool
    remaining: int
    reset_s: float
    retry_after_s: float = 0.0


def judge(rate: Rate, now: float, empty_at: float) -> tuple[float, Verdict]:
    """Return when the subject will be back at nothing, and the verdict on a request made now.

    `empty_at` is what the last call returned, 0.0 at first. One further ahead than a burst was computed
    under another rate, or before the clock was set back: it counts as a full burst.
    """
    ahead = min(max(empty_at - now, 0.0), rate.most_s)
    passes = ahead + rate.interval_s <= rate.most_s * TOLERANCE
    if passes:
        ahead += rate.interval_s
    return now + ahead, verdict_of(rate, passes=passes, ahead_s=ahead)


def verdict_of(rate: Rate, *, passes: bool, ahead_s: float) -> Verdict:
    """Return the verdict on a request after which (or at which, refused) the subject was `ahead_s` from being
    back at nothing."""
    if not passes:
        return Verdict(False, 0, ahead_s, ahead_s + rate.interval_s - rate.most_s)
    return Verdict(True, int((rate.most_s - ahead_s) / rate.interval_s + 1e-6), ahead_s)
