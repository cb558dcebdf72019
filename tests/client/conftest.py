"""A fake proxy on a real socket, at the address that the commands use by default."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.fake_proxy import FakeProxy, serving_in_thread


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[tuple[FakeProxy, str]]:
    """A fake proxy with the module's ANSWERS, and its origin."""
    fake = FakeProxy(answers=request.module.ANSWERS)
    with serving_in_thread(fake.app()) as origin:
        yield fake, origin


@pytest.fixture
def proxy(served: tuple[FakeProxy, str], monkeypatch: pytest.MonkeyPatch) -> FakeProxy:
    """The fake proxy without memories, named by MEMORY_PROXY_URL."""
    fake, origin = served
    fake.memories.clear()
    fake.requests.clear()
    fake.ids = itertools.count(1)
    monkeypatch.setenv("MEMORY_PROXY_URL", origin)
    monkeypatch.setenv("COLUMNS", "80")
    return fake
