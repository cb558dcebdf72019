"""Real clients against the proxy as it is run: a process of its own, scripted models behind it.

Collected by `scripts/test --clients` only, which installs the clients and says where.
"""

import os
import uuid
from pathlib import Path

import pytest

from tests.clients.acting import Actor
from tests.clients.stage import Stage, running
from tests.support.upstream import ScriptedUpstream

CLIENTS = "MEMORY_PROXY_CLIENTS"
collect_ignore_glob = [] if os.environ.get(CLIENTS) else ["test_*.py"]


@pytest.fixture(scope="session")
async def chat_only(tmp_path_factory):
    """A proxy whose upstream knows only chat completions."""
    actor, data_dir = Actor(), tmp_path_factory.mktemp("chat-only")
    async with ScriptedUpstream(actor) as upstream:
        with running(data_dir, actor, upstream.url) as stage:
            yield stage


@pytest.fixture(scope="session")
def native(tmp_path_factory):
    """A proxy in front of the model that it ships with, which speaks the Responses API itself."""
    with running(tmp_path_factory.mktemp("native"), None, None) as stage:
        yield stage


@pytest.fixture(params=["chat_only", "native"])
def stage(request):
    """Both, one after the other."""
    found: Stage = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def user():
    """A user without memories."""
    return f"user-{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def node_dir():
    """The folder in which the npm packages lie."""
    directory = Path(os.environ[CLIENTS], "node")
    if not (directory / "node_modules" / "ai").is_dir():
        pytest.skip("npm was not there to install the Vercel AI SDK")
    return directory
