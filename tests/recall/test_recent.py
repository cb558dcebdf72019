"""What is remembered for a while, and how long something that fails is left alone."""

from proxy.recall.recent import REST_S, TRIP_AFTER, Patience, Recent


class Hours:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_value_is_kept_for_its_time_and_no_longer():
    clock = Hours()
    recent: Recent[int] = Recent(clock, lasts_s=10, size=3)
    recent.put(b"a", 1)
    clock.now += 9
    assert recent.get(b"a") == 1
    clock.now += 1
    assert b"a" not in recent


def test_the_one_used_longest_ago_makes_room():
    recent: Recent[int] = Recent(Hours(), lasts_s=10, size=2)
    recent.put(b"a", 1)
    recent.put(b"b", 2)
    recent.get(b"a")
    recent.put(b"c", 3)
    assert [key in recent for key in (b"a", b"b", b"c")] == [True, False, True]
    assert len(recent) == 2


def test_nothing_is_a_value_too():
    recent: Recent[None] = Recent(Hours(), lasts_s=10, size=2)
    recent.put(b"a", None)
    assert b"a" in recent


def test_failures_in_a_row_begin_a_rest_and_a_success_between_them_does_not():
    clock = Hours()
    patience = Patience(clock)
    begun = [patience.failed() for _ in range(TRIP_AFTER - 1)]
    patience.succeeded()
    begun += [patience.failed() for _ in range(TRIP_AFTER)]
    assert begun == [False] * (2 * TRIP_AFTER - 2) + [True]
    assert patience.rests
    clock.now += REST_S
    assert not patience.rests
