"""Forgetting says what it takes, asks, and shows the receipt."""

import pytest
from playwright.async_api import expect

from tests.ui.conftest import LOOP, Visit
from tests.ui.sample import sample

pytestmark = pytest.mark.asyncio(loop_scope=LOOP)


async def test_one_memory_is_forgotten_after_its_consequences_were_shown(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.locator("a.row").first.click()
    await page.locator(".detail").get_by_role("button", name="Forget").click()
    dialog = page.get_by_role("dialog", name="Forget this memory?")
    await expect(dialog.get_by_text("2 exchanges of conversations")).to_be_visible()
    await expect(dialog.get_by_text("This cannot be undone.")).to_be_visible()
    await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    await dialog.get_by_role("button", name="Forget").click()
    await expect(
        page.get_by_text("Forgotten: 1 memory, 2 exchanges of conversations, 1 session.")
    ).to_be_visible()
    await expect(page.get_by_text("Receipt fgt_")).to_be_visible()
    await expect(page.get_by_text("11 memories")).to_be_visible()
    dry, wet = api.asked("DELETE", "/v1/memory/mem_000014")
    assert dry[0] == {"user_id": "ada", "dry_run": "true"}
    assert wet[0] == {"user_id": "ada"}


async def test_cancelling_forgets_nothing(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.locator("a.row").first.click()
    await page.locator(".detail").get_by_role("button", name="Forget").click()
    await expect(page.get_by_text("This cannot be undone.")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)
    assert len(api.memories) == 14


async def test_archiving_is_offered_as_what_can_be_undone(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.locator("a.row").first.click()
    await page.locator(".detail").get_by_role("button", name="Forget").click()
    await page.get_by_role("button", name="Archive instead").click()
    await expect(page.get_by_text("Archived: kept, and no longer used.")).to_be_visible()
    assert len(api.memories) == 14


async def test_a_project_is_forgotten_only_after_the_word_is_typed(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.get_by_role("button", name="Forget …").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text("14 memories")).to_be_visible()
    await dialog.get_by_label("Project").fill("apollo")
    await dialog.get_by_label("Project").press("Tab")
    await expect(dialog.get_by_text("3 memories")).to_be_visible()
    await expect(dialog.get_by_role("button", name="Forget", exact=True)).to_be_disabled()
    await dialog.get_by_label("Type “forget” to confirm").fill("forget")
    await dialog.get_by_role("button", name="Forget", exact=True).click()
    await expect(page.get_by_text("Forgotten: 3 memories")).to_be_visible()
    assert api.asked("DELETE", "/v1/memory")[-1][0] == {"user_id": "ada", "project_id": "apollo"}
    assert len(api.memories) == 11


async def test_the_filter_that_is_set_is_what_forgetting_begins_with(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.get_by_label("Type").select_option("episodic")
    await page.get_by_role("button", name="Forget …").click()
    await expect(page.get_by_role("dialog").get_by_text("3 memories")).to_be_visible()
    assert api.asked("DELETE", "/v1/memory")[-1][0] == {
        "user_id": "ada",
        "type": "episodic",
        "dry_run": "true",
    }


async def test_enter_does_not_forget_before_the_word_is_typed(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.get_by_role("button", name="Forget …").click()
    await expect(page.get_by_role("dialog").get_by_text("14 memories")).to_be_visible()
    await page.get_by_label("Type “forget” to confirm").fill("forge")
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="Cancel").click()
    assert len(api.memories) == 14


async def test_where_there_is_nothing_there_is_nothing_to_forget(visit: Visit) -> None:
    api = sample()
    api.memories.clear()
    page = await (await visit(api)).enter()
    await page.get_by_role("button", name="Forget …").click()
    await expect(page.get_by_text("There is nothing to forget here.")).to_be_visible()
    await page.get_by_label("Type “forget” to confirm").fill("forget")
    await expect(page.get_by_role("dialog").get_by_role("button", name="Forget", exact=True)).to_be_disabled()


async def test_a_count_that_fails_lets_nobody_forget(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.locator("a.row").first.click()
    await expect(page.locator(".detail .whole")).to_be_visible()
    api.fail = 503
    await page.locator(".detail").get_by_role("button", name="Forget").click()
    await expect(page.get_by_role("dialog").get_by_text("The memory store is out of reach")).to_be_visible()
    await expect(page.get_by_role("dialog").get_by_role("button", name="Forget")).to_be_disabled()
