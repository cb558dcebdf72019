"""Everything can be done without a mouse."""

import pytest
from playwright.async_api import expect

from tests.ui.conftest import LOOP, Visit
from tests.ui.fake_api import FakeApi, memory
from tests.ui.sample import sample

pytestmark = pytest.mark.asyncio(loop_scope=LOOP)


async def test_a_memory_is_found_opened_edited_and_closed(visit: Visit) -> None:
    page = await (await visit(sample())).enter()
    press = page.keyboard.press
    await press("j")
    await press("j")
    await expect(page.locator("a.row").nth(1)).to_be_focused()
    await press("k")
    await expect(page.locator("a.row").first).to_be_focused()
    await press("Enter")
    await expect(page.locator(".detail .whole")).to_contain_text("window seats")
    await press("e")
    await expect(page.get_by_label("What to remember")).to_be_focused()
    await page.keyboard.type(" Never e or j.")
    await expect(page.get_by_label("What to remember")).to_have_value(
        "Prefers window seats, and never the last row. Never e or j."
    )
    await press("Control+Enter")
    await expect(page.locator(".detail .whole")).to_contain_text("Never e or j.")
    await press("Escape")
    await expect(page.locator(".detail.open")).to_have_count(0)
    await expect(page.locator("a.row").first).to_be_focused()


async def test_delete_asks_before_it_forgets(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.locator(".detail .whole")).to_be_visible()
    await page.keyboard.press("Delete")
    await expect(page.get_by_text("This cannot be undone.")).to_be_visible()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("11 memories")).to_be_visible()


async def test_the_search_field_is_one_key_away_and_takes_letters_as_letters(visit: Visit) -> None:
    page = await (await visit(sample())).enter()
    await page.keyboard.press("/")
    await page.keyboard.type("jeans? 2")
    await expect(page.get_by_label("Filter by text")).to_have_value("jeans? 2")
    await page.keyboard.press("Escape")
    await page.keyboard.press("2")
    await expect(page.get_by_role("heading", name="Search as the model would")).to_be_visible()


async def test_the_rows_go_on_over_the_end_of_a_page(visit: Visit) -> None:
    api = FakeApi(memories=[memory(n, f"Fact {n}.") for n in range(45)])
    page = await (await visit(api)).enter()
    await page.locator("a.row").last.focus()
    await page.keyboard.press("j")
    await expect(page.locator("a.row").first).to_be_focused()
    await expect(page.locator("a.row").first).to_contain_text("Fact 4.")
    await page.keyboard.press("k")
    await expect(page.locator("a.row").last).to_be_focused()
    await expect(page.locator("a.row").last).to_contain_text("Fact 5.")


async def test_the_quarantine_is_reviewed_by_keys(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter("quarantine")
    await page.keyboard.press("j")
    await page.keyboard.press("r")
    await expect(page.locator("li.row")).to_have_count(1)
    await expect(page.locator("li.row").first).to_be_focused()
    await page.keyboard.press("Delete")
    await expect(page.get_by_role("dialog", name="Discard this candidate?")).to_be_visible()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Nothing to review")).to_be_visible()


async def test_the_page_lists_its_keyboard_shortcuts(visit: Visit) -> None:
    page = await (await visit(sample())).enter()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)


async def test_what_comes_first_skips_to_the_content(visit: Visit) -> None:
    page = await (await visit(sample())).enter("health")
    # Not by the first Tab: where that begins once a part of the page was replaced, browsers differ.
    first = page.locator("a, button, input, select, textarea, [tabindex]").first
    await expect(first).to_have_text("Skip to the content")
    await first.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    assert page.url.endswith("#/health")
