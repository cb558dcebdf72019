"""Photograph the page in every view, light and dark, wide and on a phone, into results/ui/.

    .venv/bin/python scripts/dev/ui_screens.py [part of a name]

The memory API behind it is the tests' fake one. Look at the pictures after every change of the page.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from playwright.async_api import Browser, Page

from tests.support.serving import serving
from tests.ui.browser import launched
from tests.ui.sample import sample

FOLDER = Path(__file__).parents[2] / "results" / "ui"
SIZES = {"wide": (1360, 850), "tablet": (820, 1000), "phone": (360, 740)}
VIEWS = ("memories", "search", "quarantine", "sessions", "jobs", "receipts", "transfer", "health")
SHOTS = [
    *(("wide", theme, view) for theme in ("light", "dark") for view in VIEWS),
    *(("phone", "light", view) for view in VIEWS),
    *((size, theme, "memory") for size in SIZES for theme in ("light", "dark")),
    *(
        (size, "light", name)
        for size in ("wide", "phone")
        for name in ("edit", "forget", "forget_many", "keys")
    ),
    *((size, "dark", name) for size in ("wide", "phone") for name in ("door", "broken", "empty")),
    ("phone", "dark", "memories"),
    ("tablet", "light", "memories"),
]


async def main(part: str) -> None:
    """Take the pictures whose name holds `part`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    async with launched() as browser:
        for size, theme, what in SHOTS:
            name = f"{what}-{size}-{theme}"
            if part in name:
                await shoot(browser, size, theme, what, FOLDER / f"{name}.png")


async def shoot(browser: Browser, size: str, theme: str, what: str, path: Path) -> None:
    """Take one picture, of a fresh page."""
    api = sample()
    if what == "broken":
        api.level = "none"
    if what == "empty":
        api.memories.clear()
    width, height = SIZES[size]
    context = await browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = await context.new_page()
    async with serving(api.app()) as origin:
        await page.goto(f"{origin}/ui#/{what if what in VIEWS else 'memories'}")
        if what != "door":
            await page.get_by_label("Whose memories?").fill("ada")
            await page.keyboard.press("Enter")
            await page.locator("nav.menu").wait_for()
            await page.wait_for_load_state("networkidle")
            if what == "broken":
                api.fail = 503
                await page.reload()
            await stage(page, what)
        await page.wait_for_load_state("networkidle")
        await page.screenshot(path=path)
        await context.close()


async def stage(page: Page, what: str) -> None:
    """Bring the page to what the picture is of."""
    if what == "search":
        await page.get_by_label("Message").fill("Where do I fly next month?")
        await page.keyboard.press("Enter")
    if what in ("memory", "edit", "forget"):
        await page.locator("a.row").nth(2).click()
        await page.locator(".detail dl").wait_for()
    if what == "edit":
        await page.get_by_role("button", name="Edit").click()
    if what == "forget":
        await page.locator(".detail").get_by_role("button", name="Forget").click()
    if what == "forget_many":
        await page.get_by_role("button", name="Forget …").click()
    if what == "keys":
        await page.keyboard.press("?")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
