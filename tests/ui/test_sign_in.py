"""Signing in, choosing a user, and the credential."""

import pytest
from playwright.async_api import expect

from tests.ui.conftest import LOOP, Visit
from tests.ui.fake_api import FakeApi, memory
from tests.ui.sample import sample

pytestmark = pytest.mark.asyncio(loop_scope=LOOP)


async def test_an_open_proxy_asks_whose_memories_and_can_be_asked_for_anothers(visit: Visit) -> None:
    api = FakeApi(memories=[memory(1, "Ada likes tea."), memory(2, "Bob likes gin.", user_id="bob")])
    visitor = await visit(api)
    page = visitor.page
    await page.goto(f"{visitor.origin}/ui")
    await page.get_by_label("Whose memories?").fill("ada")
    await page.keyboard.press("Enter")
    await expect(page.locator("a.row")).to_contain_text(["Ada likes tea."])
    await page.get_by_role("button", name="Change user").click()
    await page.get_by_label("Whose memories?").fill("bob")
    await page.get_by_role("button", name="Show them").click()
    await expect(page.locator("a.row")).to_contain_text(["Bob likes gin."])


async def test_a_key_opens_the_page_and_signing_out_leaves_nothing(visit: Visit) -> None:
    api = FakeApi(memories=[memory(1, "Ada likes tea.")], mode="keys", user="ada", credential="mp-secret")
    visitor = await visit(api)
    page = visitor.page
    await page.goto(f"{visitor.origin}/ui")
    await page.get_by_label("Key or token").fill("wrong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert").filter(has_text="not accepted")).to_be_visible()
    assert await page.evaluate("sessionStorage.length") == 0
    await page.get_by_label("Key or token").fill("mp-secret")
    await page.keyboard.press("Enter")
    await expect(page.locator("a.row")).to_contain_text(["Ada likes tea."])
    assert "mp-secret" not in page.url
    assert api.asked("GET", "/v1/memory")[-1][0].get("user_id") is None, "the key says who it is"
    await page.reload()
    await expect(page.locator("a.row")).to_have_count(1)
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Key or token")).to_be_visible()
    left = await page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])")
    assert left == '[{},{},""]'


async def test_a_revoked_key_leads_back_to_the_sign_in(visit: Visit) -> None:
    api = sample()
    api.mode, api.user, api.credential = "keys", "ada", "first"
    visitor = await visit(api)
    page = visitor.page
    await page.goto(f"{visitor.origin}/ui")
    await page.get_by_label("Key or token").fill("first")
    await page.keyboard.press("Enter")
    await visitor.settled()
    api.credential = "second"
    await page.get_by_role("link", name="Sessions").click()
    await expect(page.get_by_text("Sign in again.")).to_be_visible()
