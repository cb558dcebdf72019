"""The scripted model on a real socket, and a proxy in miniature."""

import itertools
from collections.abc import Iterator

import pytest

from proxy.demo.model import scripted_model
from tests.demo.fake_proxy import FakeProxy
from tests.demo.serving import serving_in_thread


@pytest.fixture(scope="session")
def model_url() -> Iterator[str]:
    """The scripted model's base URL, without a delay between chunks."""
    with serving_in_thread(scripted_model(chunk_delay_s=0)) as origin:
        yield f"{origin}/v1"


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[tuple[FakeProxy, str]]:
    """A proxy that gives the module's ANSWERS, and its address."""
    fake = FakeProxy(answers=request.module.ANSWERS)
    with serving_in_thread(fake.app()) as origin:
        yield fake, origin


@pytest.fixture
def proxy(served: tuple[FakeProxy, str], monkeypatch: pytest.MonkeyPatch) -> FakeProxy:
    """An empty proxy, at the address that the commands use by themselves."""
    fake, origin = served
    fake.memories.clear()
    fake.requests.clear()
    fake.ids = itertools.count(1)
    monkeypatch.setenv("MEMORY_PROXY_URL", origin)
    monkeypatch.setenv("COLUMNS", "80")
    return fake
