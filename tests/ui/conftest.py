"""A visitor in a real browser, in front of a fake memory API. Whatever a test does, at its end nothing may
have reached another host, been blocked by the page's own policy, or ended in an error of a script."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, ViewportSize, expect

from tests.support.serving import serving
from tests.ui.browser import chromium, launched
from tests.ui.fake_api import FakeApi

WIDE: ViewportSize = {"width": 1360, "height": 850}
LOOP = "session"  # one event loop for the browser and all of its tests
expect.set_options(timeout=8_000)


@dataclass
class Visitor:
    """A visitor of the page. `errors`: of scripts and browser."""

    page: Page
    context: BrowserContext
    origin: str
    errors: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)

    async def enter(self, place: str = "memories", user: str = "ada") -> Page:
        """Open the page at an entry of the menu, with a user chosen."""
        await self.page.add_init_script(f"sessionStorage.setItem('user', {json.dumps(user)})")
        await self.page.goto(f"{self.origin}/ui#/{place}")
        await self.page.locator("nav.menu").wait_for()
        await self.settled()
        return self.page

    async def settled(self) -> None:
        """Return when the page has all that it asked for."""
        await expect(self.page.locator("[aria-busy]")).to_have_count(0)
        await expect(self.page.locator(".skeleton")).to_have_count(0)

    def on_console(self, message: ConsoleMessage) -> None:
        # The browser reports every answer above 399; the tests that make one look at what the page says.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def requested(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "blob:" + self.origin)):
            self.strays.append(request.url)


@pytest_asyncio.fixture(loop_scope=LOOP, scope="package")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests; each gets a page of its own."""
    if chromium() is None:
        pytest.skip("NO BROWSER, the page at /ui is not tested: run scripts/browser")
    async with launched() as running:
        yield running


@pytest_asyncio.fixture(loop_scope=LOOP, scope="package")
async def shared(browser: Browser) -> BrowserContext:
    """The profile of all visitors who ask for nothing special. What one leaves there, no other can see: each
    test's server has a port of its own, and so its page is of another origin."""
    return await browser.new_context(viewport=WIDE)


Visit = Callable[..., Awaitable[Visitor]]


@pytest_asyncio.fixture(loop_scope=LOOP)
async def visit(browser: Browser, shared: BrowserContext) -> AsyncIterator[Visit]:
    """Serve an API with the page, and give a visitor: `await visit(api)`. Options are the context's."""
    visitors: list[Visitor] = []
    running = []

    async def begin(api: FakeApi | str, **options: object) -> Visitor:
        origin = api
        if isinstance(api, FakeApi):
            running.append(serving(api.app()))
            origin = await running[-1].__aenter__()
        context = await browser.new_context(**{"viewport": WIDE, **options}) if options else shared
        visitor = Visitor(await context.new_page(), context, str(origin))
        visitors.append(visitor)
        visitor.page.on("request", visitor.requested)
        visitor.page.on("console", visitor.on_console)
        visitor.page.on("pageerror", lambda error: visitor.errors.append(str(error)))
        return visitor

    yield begin
    for visitor in visitors:
        await (visitor.page if visitor.context is shared else visitor.context).close()
    for server in running:
        await server.__aexit__(None, None, None)
    assert [v.errors for v in visitors] == [[] for _ in visitors]
    assert [v.strays for v in visitors] == [[] for _ in visitors]
