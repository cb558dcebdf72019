"""What can be measured of how it looks: contrast, names, phones, themes, steadiness."""

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.ui.conftest import LOOP, Visit
from tests.ui.sample import sample

pytestmark = pytest.mark.asyncio(loop_scope=LOOP)

PAGES = (
    "try memories profile timeline links insights documents search quarantine sessions jobs receipts transfer"
    " health"
).split()

# Every text that is visible, with the contrast to what is behind it (WCAG 2.2, 1.4.3). Colors are painted
# on a canvas, so that whatever notation a style has becomes numbers.
CONTRASTS = """() => {
  const paint = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const over = (colors) => {
    paint.clearRect(0, 0, 1, 1);
    for (const color of colors) { paint.fillStyle = color; paint.fillRect(0, 0, 1, 1); }
    return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const colors = [];
    for (let at = element; at; at = at.parentElement) colors.unshift(getComputedStyle(at).backgroundColor);
    return colors;
  };
  const weak = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility({ opacityProperty: true })) continue;
    if (element.closest(":disabled, datalist, option")) continue;
    seen += 1;
    const ground = behind(element);
    const [a, b] = [light(over([...ground, getComputedStyle(element).color])), light(over(ground))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) weak.push([element.className, walker.currentNode.data.slice(0, 30), ratio.toFixed(2)]);
  }
  return { seen, weak };
}"""

UNNAMED = """() => [...document.querySelectorAll("button, a[href], input, select, textarea, nav, aside")]
  .filter((e) => e.checkVisibility())
  .filter((e) => !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim()))
  .map((e) => e.outerHTML.slice(0, 100))"""
BOTH = f"() => [({CONTRASTS})(), ({UNNAMED})()]"


async def everywhere(page: Page, check: str) -> list[object]:
    """Return what the check finds, in all places of the menu."""
    found = []
    for place in PAGES:
        await page.evaluate(f"location.hash = '#/{place}'")
        await expect(page.locator(f"main.{place}")).to_have_count(1)
        await expect(page.locator("[aria-busy], .skeleton")).to_have_count(0)
        found.append(await page.evaluate(check))
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_all_text_can_be_read_and_every_control_has_a_name(visit: Visit, theme: str) -> None:
    page = await (await visit(sample(), color_scheme=theme)).enter()
    results: list[Any] = await everywhere(page, BOTH)
    assert [(contrast["weak"], unnamed) for contrast, unnamed in results] == [([], [])] * len(PAGES)
    assert min(contrast["seen"] for contrast, _ in results) > 10, "or the check looks at nothing"
    await page.evaluate("location.hash = '#/memories/mem_000012'")
    await expect(page.locator(".detail dl")).to_be_visible()
    await page.keyboard.press("e")
    await expect(page.locator("dialog")).to_be_visible()
    assert (await page.evaluate(CONTRASTS))["weak"] == []


async def test_no_view_is_wider_than_the_window(visit: Visit) -> None:
    page = await (await visit(sample(), viewport={"width": 820, "height": 740})).enter()
    beyond = """() => Math.max(...[document.documentElement, document.querySelector("main")]
        .map((e) => e.scrollWidth)) - innerWidth"""
    for width in (820, 320):
        await page.set_viewport_size({"width": width, "height": 740})
        assert max(await everywhere(page, beyond)) <= 0  # type: ignore[type-var]
