"""What the app answers, without a browser."""

import re
from pathlib import Path
from typing import Any, get_args

import httpx2 as httpx
import pytest

from proxy.domain.core import Reason, Source
from proxy.http import operations as app
from proxy.http.operations import Ui
from proxy.recall.explain import LeftOut

STATIC = Path(app.__file__).parent / "ui/static"
UI = Ui.load()


async def ask(path: str, method: str = "GET", headers: dict[str, str] | None = None) -> httpx.Response:
    """Ask the app for a path."""
    transport = httpx.ASGITransport(app=UI)
    async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as client:
        return await client.request(method, path, headers=headers)


def assets() -> list[str]:
    """Return the paths of all assets but the page."""
    return [path for path in UI.assets if path]


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/nothing", f"/ui/{assets()[0]}"])
async def test_every_answer_forbids_what_the_page_does_not_need(path: str) -> None:
    headers = (await ask(path)).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


async def test_the_page_is_one_slash_away_wherever_the_proxy_is_mounted() -> None:
    response = await ask("/ui")
    assert (response.status_code, response.headers["location"]) == (308, "ui/")
    refused = await ask("/ui/", "POST")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_assets_are_kept_for_good_and_the_page_is_asked_for_again() -> None:
    page = await ask("/ui/")
    assert page.headers["cache-control"] == "no-cache"
    again = await ask("/ui/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    asset = await ask(f"/ui/{assets()[0]}")
    assert "immutable" in asset.headers["cache-control"]


@pytest.mark.parametrize(
    "path", ["/ui/app.py", "/ui/../app.py", "/ui/%2e%2e/app.py", "/ui/0/app.js", "/ui//"]
)
async def test_nothing_but_the_assets_is_served(path: str) -> None:
    assert (await ask(path)).status_code == 404


def test_the_page_names_each_of_its_files_and_no_other() -> None:
    # A module that is not named loads late; one that is named and not there is an error in the console.
    page = UI.assets[""].body.decode()
    named = set(re.findall(r'(?:href|src)="([^"]+)"', page))
    assert named == set(assets())


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.js")), ids=lambda p: p.name)
def test_no_script_makes_markup_or_code_of_text(path: Path) -> None:
    source = path.read_text("utf-8")
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|eval\(|new Function|https?://(?!www\.w3\.org/)"
    assert re.findall(ways, source) == []


def test_only_the_theme_is_kept_beyond_the_tab() -> None:
    uses: dict[str, Any] = {
        path.name: set(re.findall(r"localStorage\.\w+\(\"?(\w+)", path.read_text("utf-8")))
        for path in STATIC.glob("*.js")
    }
    used = {name: count for name, count in uses.items() if count}
    assert used == {"shell.js": {"theme"}, "theme.js": {"theme"}}


@pytest.mark.parametrize(
    ("script", "table", "values"),
    [
        ("words.js", "HOW", get_args(Source)),
        ("words.js", "REASONS", tuple(Reason)),
        ("words.js", "LEFT_OUT", get_args(LeftOut)),
    ],
)
def test_every_value_of_the_api_has_its_words(script: str, table: str, values: tuple[str, ...]) -> None:
    words = (STATIC / script).read_text("utf-8").partition(f"const {table} = {{")[2].partition("};")[0]
    assert set(values) <= set(re.findall(r"^  (\w+):", words, re.MULTILINE))
