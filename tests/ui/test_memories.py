"""The list of memories, one memory, editing and forgetting it."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.ui.conftest import LOOP, Visit
from tests.ui.sample import sample

pytestmark = pytest.mark.asyncio(loop_scope=LOOP)


async def test_filters_narrow_the_list_and_inactive_ones_are_shown_on_demand(visit: Visit) -> None:
    visitor = await visit(sample())
    page = await visitor.enter()
    await page.get_by_label("Filter by text").fill("lisbon")
    await expect(page.locator("a.row")).to_have_count(1)
    await page.get_by_label("Filter by text").fill("")
    await page.get_by_label("Type").select_option("preference")
    await expect(page.locator("a.row .type-preference")).to_have_count(4)
    await page.get_by_label("Type").select_option("")
    await page.get_by_label("Project").fill("running")
    await expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    await page.get_by_label("Inactive, too").check()
    await expect(page.locator("a.row")).to_contain_text(["half marathon"])
    await expect(page.locator(".state-mark")).to_have_text("superseded")


async def test_an_answer_that_comes_late_does_not_replace_a_newer_one(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    api.held_back = asyncio.Event()
    await page.get_by_label("Type").select_option("episodic")
    await expect(page.locator("ol.rows[aria-busy]")).to_have_count(1)
    slow, api.held_back = api.held_back, None
    await page.get_by_label("Type").select_option("procedural")
    await expect(page.locator("a.row .badge:first-child")).to_have_text(["procedural"])
    slow.set()
    await api.let_go.wait()
    await page.evaluate("fetch('/health').then((response) => response.text())")  # a later answer has come
    await expect(page.locator("a.row .badge:first-child")).to_have_text(["procedural"])
    await expect(page.locator("[aria-busy]")).to_have_count(0)


async def test_the_address_leads_back_to_an_open_memory(visit: Visit) -> None:
    visitor = await visit(sample())
    page = await visitor.enter()
    await page.locator("a.row").first.click()
    await expect(page.locator(".detail .whole")).to_contain_text("window seats")
    assert page.url.endswith("#/memories/mem_000014"), "the view and the id, and nobody's name"
    await page.reload()
    await expect(page.locator(".detail .whole")).to_contain_text("window seats")
    await page.go_back()
    await expect(page.locator(".detail.open")).to_have_count(0)


async def test_an_edit_leaves_alone_what_the_form_cannot_show_as_it_is(visit: Visit) -> None:
    api = sample()
    edited = {"content": "Prefers window seats.\r\nAlways.", "tags": ["Paris, France"], "expires_at": 4e9 + 7}
    newest = max(api.memories, key=lambda one: one["id"])
    newest |= edited | {"project_id": " padded "}
    page = await (await visit(api)).enter()
    await page.locator("a.row").first.click()
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_label("Importance").fill("0.9")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("dialog")).to_have_count(0)
    [(_, body)] = api.asked("PATCH", "/v1/memory/mem_000014")
    assert body == {"importance": 0.9}


async def test_a_secret_is_refused_at_the_field_that_holds_it(visit: Visit) -> None:
    page = await (await visit(sample())).enter()
    await page.get_by_role("button", name="Add").click()
    await page.get_by_label("What to remember").fill("The password is hunter2.")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("textarea[aria-invalid]")).to_be_focused()
    await expect(page.get_by_text("This looks like a secret.")).to_be_visible()


FAILURES = {
    503: "The chat continues without memory",
    429: "Try again in 7 seconds",
    500: "Its log says more",
    403: "It failed.",
}


async def test_a_failure_is_explained_and_can_be_retried(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter("sessions")
    for api.fail, words in FAILURES.items():
        await page.get_by_role("link", name="Memories", exact=True).click()
        await expect(page.get_by_role("alert").filter(has_text=words)).to_be_visible()
        await page.get_by_role("link", name="Health", exact=True).click()
    await page.get_by_role("link", name="Memories", exact=True).click()
    await expect(page.get_by_role("alert")).to_be_visible()
    api.fail = None
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("a.row")).to_have_count(12)


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


async def test_nothing_is_forgotten_without_a_count(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.locator("a.row").first.click()
    await expect(page.locator(".detail .whole")).to_be_visible()
    api.fail = 503
    await page.locator(".detail").get_by_role("button", name="Forget").click()
    await expect(page.get_by_role("dialog").get_by_text("The memory store is out of reach")).to_be_visible()
    await expect(page.get_by_role("dialog").get_by_role("button", name="Forget")).to_be_disabled()
