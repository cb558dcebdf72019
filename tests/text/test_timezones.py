"""Time zones by name, and local time where it is odd."""

from datetime import UTC, datetime

import pytest

from proxy.text.dates import LAST_SECOND, UnknownZone, canonical, day_start, instant, local_time

AT = datetime(2026, 3, 5, 22, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("Asia/Tokyo", "Asia/Tokyo"),
        (" europe/berlin ", "Europe/Berlin"),
        ("utc", "UTC"),
        ("+05:30", "+05:30"),
        ("UTC+2", "+02:00"),
        ("\N{MINUS SIGN}8", "-08:00"),
        ("+14:00", "+14:00"),
    ],
)
def test_names_and_offsets_are_zones(name, stored):
    assert canonical(name) == stored
    assert canonical(stored) == stored
    assert local_time(AT, stored).timestamp() == AT


@pytest.mark.parametrize(
    "name",
    ["", "Mars/Phobos", "../etc/passwd", "/usr/share/zoneinfo/UTC", "America",
     "UTC+15", "+14:01", "+2:75", "x" * 999,
     "Europe/Berlin\0", "local", "{{TIMEZONE}}"],
)  # fmt: skip
def test_anything_else_is_none(name):
    with pytest.raises(UnknownZone):
        canonical(name)


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "-12:00", "America/Los_Angeles", "No/Such", ""])
@pytest.mark.parametrize("at", [0.0, -1e30, 1e30, -62_135_596_800.0, float(LAST_SECOND)])
def test_no_moment_and_no_stored_name_fails(zone, at):
    assert 1 <= local_time(at, zone).year <= 9999


def test_every_day_begins_at_some_time():
    """Also a day that the zone skips, or its midnight."""
    for zone in ("Europe/Berlin", "Pacific/Apia", "Pacific/Kiritimati", "-12:00"):
        for day in ((1, 1, 1), (9999, 12, 31), (2026, 3, 29), (2011, 12, 30)):
            assert isinstance(day_start(*day, zone), float)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-03-05T22:30:00Z", AT),
        ("2026-03-06T07:30+09:00", AT),
        ("2026-03-05T22:30:00", None),
        ("2026-03-05", None),
        ("0001-01-01T00:00:00+14:00", -62_135_647_200.0),
        ("yesterday", None),
    ],
)
def test_a_moment_has_its_zone(text, at):
    assert instant(text) == at
