"""Times that a question names, in several languages, and the memories of those times."""

from datetime import UTC, datetime, timedelta

import pytest

from proxy.pipeline.recall.times import is_of, named_times
from proxy.timezones import local

NOW = datetime(2026, 6, 17, 10, tzinfo=UTC)  # a Wednesday


def day(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("What did we decide in March?", "2026-03-01", "2026-04-01"),
        ("Was haben wir im März beschlossen?", "2026-03-01", "2026-04-01"),
        ("Where were we in December?", "2025-12-01", "2026-01-01"),
        ("What did I buy in October 2024?", "2024-10-01", "2024-11-01"),
        ("What did I say last week?", "2026-06-08", "2026-06-15"),
        ("我上个月花了多少?", "2026-05-01", "2026-06-01"),
        ("¿Adónde fuimos el verano pasado?", "2025-06-01", "2025-09-01"),
        ("What broke last winter?", "2025-12-01", "2026-03-01"),
        ("What did I tell you yesterday?", "2026-06-16", "2026-06-17"),
        ("Which books did I read last year?", "2025-01-01", "2026-01-01"),
        ("What did we agree on 3 March?", "2026-03-03", "2026-03-04"),
        ("What did we agree on March 3rd?", "2026-03-03", "2026-03-04"),
        ("Who called on the 21st of August?", "2025-08-21", "2025-08-22"),
        ("Which figures did I send May 23, 2024?", "2024-05-23", "2024-05-24"),
        ("Was haben wir am 3. März beschlossen?", "2026-03-03", "2026-03-04"),
        ("What broke last Friday?", "2026-06-12", "2026-06-13"),
        ("What broke last Wednesday?", "2026-06-10", "2026-06-11"),
        ("Where did we hike last weekend?", "2026-06-13", "2026-06-15"),
        ("How many invoices did I write in 2024?", "2024-01-01", "2025-01-01"),
    ],
)
def test_a_time_is_read(text: str, start: str, end: str) -> None:
    (period,) = named_times(text, NOW)
    assert (period.start, period.end) == (day(start), day(end))


@pytest.mark.parametrize(
    "text",
    [
        "May I park here?",
        "They march in step",
        "What's my budget?",
        "Do my 3 may come too?",
        "Does may 5 do?",
        "What is due on 31 June?",
    ],
)
def test_words_that_look_like_months_name_no_time(text: str) -> None:
    assert named_times(text, NOW) == ()


def test_a_memory_is_of_a_time_by_its_day_or_by_what_it_says() -> None:
    (march,) = named_times("What happened in March?", NOW)
    assert is_of(march, "User moved.", day("2026-03-09"))
    assert is_of(march, "User moved on 2026-03-09.", day("2026-05-01"))
    assert is_of(march, "User moves on 9 March 2026.", day("2026-01-01"))
    assert not is_of(march, "User moved on 2026-04-09.", day("2026-05-01"))
    assert not is_of(march, "Code 2026-99-99 is no day.", day("2026-05-01"))
    (may,) = named_times("What happened in May?", NOW)
    assert is_of(may, "User moves in May.", day("2026-01-01"))
    assert not is_of(may, "User lives in Mayfair.", day("2026-01-01"))


def test_a_memory_is_of_a_day_that_it_names_either_way() -> None:
    (third,) = named_times("What happened on 3 March?", NOW)
    assert is_of(third, "User moved.", day("2026-03-03") + 3600)
    assert is_of(third, "User moved on March 3.", day("2026-05-01"))
    assert not is_of(third, "User moved on March 30.", day("2026-05-01"))
    assert not is_of(third, "User moved on 23 March.", day("2026-05-01"))


def test_on_a_sunday_last_weekend_is_not_the_one_that_lasts() -> None:
    (weekend,) = named_times("Where were we last weekend?", datetime(2026, 6, 21, tzinfo=UTC))
    assert (weekend.start, weekend.end) == (day("2026-06-13"), day("2026-06-15"))


def test_a_memory_is_of_a_year_that_it_names() -> None:
    (year,) = named_times("Which books did I read last year?", NOW)
    assert is_of(year, "User read all of Dickens in 2025.", day("2026-03-01"))
    assert not is_of(year, "User owns 12025 books.", day("2026-03-01"))


@pytest.mark.parametrize(
    ("zone", "start"),
    [
        ("Asia/Tokyo", "2026-06-16T15:00Z"),
        ("America/Los_Angeles", "2026-06-16T07:00Z"),
        ("+14:00", "2026-06-16T10:00Z"),
    ],
)
def test_yesterday_is_the_users(zone: str, start: str) -> None:
    """At 18:00 UTC on 17 June it is 18 June in Tokyo and Kiritimati, 17 June in Los Angeles."""
    at = local(datetime(2026, 6, 17, 18, tzinfo=UTC).timestamp(), zone)
    (yesterday,) = named_times("What did I do yesterday?", at)
    assert yesterday.start == datetime.fromisoformat(start).timestamp()
    assert yesterday.end - yesterday.start == 86_400
    assert is_of(yesterday, f"User ran on {at.date() - timedelta(days=1)}.", 0.0)


def test_a_day_on_which_the_clocks_change_is_as_long_as_it_is() -> None:
    at = local(datetime(2026, 3, 30, 10, tzinfo=UTC).timestamp(), "Europe/Berlin")
    (yesterday,) = named_times("What did I do yesterday?", at)
    assert yesterday.end - yesterday.start == 23 * 3600
