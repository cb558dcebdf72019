import pytest

from proxy.upstream.completer import LONGEST_S, MOST, PROBE_S, Pauses, retry_after

HERE, THERE = ("http://a/v1", b"1"), ("http://a/v1", b"2")


def pauses() -> Pauses:
    return Pauses(first_s=2, limit_s=300, jitter=lambda: 1.0)


def test_a_pause_is_of_one_endpoint_and_credential() -> None:
    rest = pauses()
    rest.refused(HERE, began=0, now=0, asked_s=None)
    assert rest.left(HERE, 1) == 1
    assert rest.left(THERE, 1) == 0


def test_pauses_double_up_to_a_bound_and_an_answer_ends_them() -> None:
    rest, now, lengths = pauses(), 0.0, []
    for _ in range(10):
        lengths.append(rest.refused(HERE, began=now, now=now, asked_s=None))
        now += 1000
    assert lengths[:4] == [2, 4, 8, 16]
    assert max(lengths) == 300
    rest.answered(HERE)
    assert rest.left(HERE, now) == 0
    assert rest.refused(HERE, began=now, now=now, asked_s=None) == 2


def test_calls_under_way_together_are_one_refusal() -> None:
    rest = pauses()
    rest.refused(HERE, began=0, now=1, asked_s=None)
    rest.refused(HERE, began=0.5, now=2, asked_s=None)
    assert rest.left(HERE, 2) == 1
    rest.refused(HERE, began=0.5, now=2, asked_s=60)
    assert rest.left(HERE, 2) == 60


def test_after_a_pause_one_call_goes_ahead_and_the_next_where_that_tells_nothing() -> None:
    rest = pauses()
    rest.refused(HERE, began=0, now=0, asked_s=None)
    assert rest.left(HERE, 2) == 0
    assert rest.left(HERE, 2) == PROBE_S
    assert rest.left(HERE, 2 + PROBE_S) == 0
    rest.answered(HERE)
    assert rest.left(HERE, 2) == rest.left(HERE, 2) == 0


def test_of_very_many_pauses_those_that_are_over_go_first_and_then_the_oldest() -> None:
    rest, long = pauses(), 3_000.0
    keys = [("http://a/v1", str(number).encode()) for number in range(MOST + 2)]
    rest.refused(keys[0], began=0, now=0, asked_s=long)
    rest.refused(keys[1], began=0, now=0, asked_s=None)  # over at 2
    for key in keys[2:MOST]:
        rest.refused(key, began=0, now=0, asked_s=long)
    rest.refused(keys[MOST], began=10, now=10, asked_s=long)
    assert rest.left(keys[0], 10) > 0
    rest.refused(keys[MOST + 1], began=10, now=10, asked_s=long)
    assert rest.left(keys[0], 10) == 0
    assert all(rest.left(key, 10) > 0 for key in keys[2:])


def test_what_the_endpoint_asks_for_is_honoured_within_reason() -> None:
    rest = pauses()
    assert rest.refused(HERE, began=0, now=0, asked_s=30) == 31
    assert rest.refused(THERE, began=0, now=0, asked_s=1e9) == LONGEST_S + 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], None),
        ([(b"Retry-After", b"20")], 20),
        ([(b"retry-after", b"1.5")], 1.5),
        ([(b"retry-after", b"0")], 0),
        ([(b"retry-after-ms", b"250"), (b"retry-after", b"1")], 0.25),
        ([(b"retry-after", b"Thu, 28 May 2026 20:26:50 GMT")], 10),
        ([(b"retry-after", b"Thu, 28 May 2020 20:26:50 GMT")], 0),
        *(([(b"retry-after", v)], None) for v in (b"", b"soon", b"-3", b"nan", b"inf", b"1e9", b"\xb2")),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(
    headers: list[tuple[bytes, bytes]], seconds: float | None
) -> None:
    assert retry_after(headers, now=1_780_000_000.0) == seconds
