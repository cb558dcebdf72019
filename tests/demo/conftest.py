"""The scripted model on a real socket."""

from collections.abc import Iterator

import pytest

from proxy.demo.model import scripted_model
from tests.support.fake_proxy import serving_in_thread


@pytest.fixture(scope="session")
def model_url() -> Iterator[str]:
    """The scripted model's base URL, without a delay between chunks."""
    with serving_in_thread(scripted_model(chunk_delay_s=0)) as origin:
        yield f"{origin}/v1"
