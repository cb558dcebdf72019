from proxy.domain.limits import TTLCache


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_value_expires_after_its_time_to_live() -> None:
    clock = Clock()
    cache = TTLCache[str, int](3, ttl_s=10, clock=clock)
    cache.put("a", 1)
    clock.now = 9.9
    assert "a" in cache
    assert cache.get("a") == 1
    clock.now = 10
    assert "a" not in cache
    assert cache.get("a") is None
    assert len(cache) == 0


def test_the_least_recently_used_value_is_evicted_first() -> None:
    cache = TTLCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.get("a")
    cache.put("c", 3)
    assert list(cache) == ["a", "c"]
    cache.pop("a")
    cache.pop("nothing")
    assert list(cache) == ["c"]
    cache.clear()
    assert list(cache) == []


def test_sizes_are_bounded_together() -> None:
    cache = TTLCache[str, bytes](10, size_of=len)
    cache.put("a", b"1234")
    cache.put("b", b"1234")
    cache.put("a", b"123456")  # replaced: its old size no longer counts
    assert list(cache) == ["b", "a"]
    cache.put("b", b"x" * 11)  # too large, and the old value is not valid any more
    assert list(cache) == ["a"]
    cache.put("c", b"12345")
    assert list(cache) == ["c"]
