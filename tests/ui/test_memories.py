"""The list of memories, one memory, and what can be done to it."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.ui.conftest import LOOP, Visit
from tests.ui.fake_api import FakeApi, memory
from tests.ui.sample import CONTENTS, sample

pytestmark = pytest.mark.asyncio(loop_scope=LOOP)


async def test_memories_are_listed_the_newest_first_with_their_number(visit: Visit) -> None:
    page = await (await visit(sample())).enter()
    await expect(page.get_by_text("12 memories")).to_be_visible()
    rows = page.locator("a.row")
    await expect(rows.first).to_contain_text("window seats")
    await expect(rows.first.locator("time")).to_contain_text("minutes ago")
    assert await rows.first.locator("time").get_attribute("title")


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


async def test_many_memories_are_never_more_than_a_page_of_nodes(visit: Visit) -> None:
    many = [memory(n, f"Fact number {n}.", tags=["a", "b", "c", "d"]) for n in range(20_000)]
    visitor = await visit(FakeApi(memories=many))
    page = await visitor.enter()
    await expect(page.get_by_text("1–40 of 20,000 memories")).to_be_visible()
    await page.get_by_role("button", name="Next").click()
    await expect(page.get_by_text("41–80 of 20,000 memories")).to_be_visible()
    await expect(page.locator("a.row").first).to_contain_text("Fact number 19959.")
    assert await page.evaluate("document.querySelectorAll('main *').length") < 600
    await page.get_by_role("button", name="Previous").click()
    await expect(page.locator("a.row").first).to_contain_text("Fact number 19999.")


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


async def test_a_memory_shows_where_it_comes_from_and_what_became_of_it(visit: Visit) -> None:
    page = await (await visit(sample())).enter()
    await page.locator("a.row").nth(2).click()
    detail = page.locator(".detail")
    await expect(detail.locator(".evidence blockquote")).to_have_text(f"… {CONTENTS[2][1]}")
    await expect(detail.locator(".evidence code")).to_have_text("s-9")
    await expect(detail.locator(".timeline li")).to_have_count(2)
    await expect(detail.locator(".timeline li").last).to_contain_text("created from a conversation")
    await expect(page.locator("a.row[aria-current=true]")).to_have_count(1)


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


async def test_an_edit_sends_what_was_changed_and_nothing_else(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.locator("a.row").first.click()
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_label("What to remember").fill("Prefers aisle seats.")
    await page.get_by_label("Tags").fill("flights, aisle, flights")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".detail .whole")).to_have_text("Prefers aisle seats.")
    await expect(page.locator("a.row").first).to_contain_text("aisle seats")
    [(query, body)] = api.asked("PATCH", "/v1/memory/mem_000014")
    assert query == {"user_id": "ada"}
    assert body == {"content": "Prefers aisle seats.", "tags": ["flights", "aisle"]}


async def test_an_edit_leaves_alone_what_the_form_cannot_show_as_it_is(visit: Visit) -> None:
    api = sample()
    told = {"content": "Prefers window seats.\r\nAlways.", "tags": ["Paris, France"], "expires_at": 4e9 + 7}
    newest = max(api.memories, key=lambda one: one["id"])
    newest |= told | {"project_id": " padded "}
    page = await (await visit(api)).enter()
    await page.locator("a.row").first.click()
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_label("Importance").fill("0.9")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("dialog")).to_have_count(0)
    [(_, body)] = api.asked("PATCH", "/v1/memory/mem_000014")
    assert body == {"importance": 0.9}


async def test_a_memory_of_no_project_is_not_offered_the_one_that_the_list_is_filtered_by(
    visit: Visit,
) -> None:
    api = sample()
    general = next(one for one in api.memories if one["project_id"] is None)
    page = await (await visit(api)).enter()
    await page.get_by_label("Project").first.fill("nowhere")
    await expect(page.get_by_text("Nothing matches")).to_be_visible()
    await page.evaluate("id => { location.hash = `#/memories/${id}` }", general["id"])
    await page.get_by_role("button", name="Edit").click()
    await expect(page.get_by_label("Project", exact=True).last).to_have_value("")


async def test_project_and_end_can_be_set_and_taken_away(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.locator("a.row").first.click()
    for project, expires in (("", "2031-05-01T10:00"), ("berlin", "")):
        await page.get_by_role("button", name="Edit").click()
        await page.get_by_label("Project", exact=True).last.fill(project)
        await page.get_by_label("Expires").fill(expires)
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("dialog")).to_have_count(0)
        await expect(page.locator(".detail[aria-busy]")).to_have_count(0)
    (_, first), (_, second) = api.asked("PATCH", "/v1/memory/mem_000014")
    assert first["project_id"] is None
    assert isinstance(first["expires_at"], int)
    assert second == {"project_id": "berlin", "expires_at": None}


async def test_an_edit_that_is_refused_is_said_and_loses_nothing(visit: Visit) -> None:
    page = await (await visit(sample())).enter()
    await page.locator("a.row").first.click()
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_label("What to remember").fill(CONTENTS[1][1])
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Another memory says just that.")).to_be_visible()
    await expect(page.get_by_label("What to remember")).to_have_value(CONTENTS[1][1])


async def test_a_memory_is_added_by_hand(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.get_by_role("button", name="Add").click()
    await page.get_by_label("What to remember").fill("Rides a red bicycle.")
    await page.get_by_label("Type").last.select_option("preference")
    await page.get_by_label("Importance").fill("")
    await page.get_by_role("button", name="Add", exact=True).last.click()
    await expect(page.locator(".detail .whole")).to_have_text("Rides a red bicycle.")
    await expect(page.locator("a.row[aria-current]")).to_contain_text("Rides a red bicycle.")
    [(_, body)] = api.asked("POST", "/v1/memory")
    assert body == {"content": "Rides a red bicycle.", "type": "preference", "user_id": "ada"}


async def test_a_secret_is_refused_at_the_field_that_holds_it(visit: Visit) -> None:
    page = await (await visit(sample())).enter()
    await page.get_by_role("button", name="Add").click()
    await page.get_by_label("What to remember").fill("The password is hunter2.")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("textarea[aria-invalid]")).to_be_focused()
    await expect(page.get_by_text("This looks like a secret.")).to_be_visible()


async def test_archiving_takes_a_memory_out_of_use_and_can_be_taken_back(visit: Visit) -> None:
    api = sample()
    page = await (await visit(api)).enter()
    await page.locator("a.row").first.click()
    await page.get_by_role("button", name="Archive").click()
    await expect(page.get_by_text("11 memories")).to_be_visible()
    await page.get_by_role("button", name="Restore").click()
    await expect(page.get_by_text("12 memories")).to_be_visible()
    assert [body for _, body in api.asked("PATCH", "/v1/memory/mem_000014")] == [
        {"archived": True},
        {"archived": False},
    ]


FAILURES = {
    503: "The chat goes on without memory",
    429: "Try again in 7 seconds",
    500: "Its log says more",
    403: "It failed.",
}


async def test_a_failure_is_told_in_words_that_help_and_can_be_tried_again(visit: Visit) -> None:
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


async def test_a_proxy_that_is_gone_is_told_apart_from_an_empty_memory(visit: Visit) -> None:
    visitor = await visit(sample(), locale="en")  # a profile of its own: all of its pages go offline
    page = await visitor.enter("sessions")
    await visitor.context.set_offline(True)
    await page.get_by_role("link", name="Memories", exact=True).click()
    await expect(page.get_by_role("heading", name="The proxy does not answer")).to_be_visible()


async def test_an_empty_memory_says_what_to_do(visit: Visit) -> None:
    page = await (await visit(FakeApi())).enter()
    await expect(page.get_by_role("heading", name="Nothing is remembered yet")).to_be_visible()
    await page.get_by_role("button", name="Add a memory").click()
    await expect(page.get_by_label("What to remember")).to_be_focused()


async def test_what_was_typed_is_not_lost_by_one_slip(visit: Visit) -> None:
    page = await (await visit(sample())).enter()
    await page.keyboard.press("n")
    await page.get_by_label("What to remember").fill("A long thought.")
    await page.keyboard.press("Escape")
    await expect(page.get_by_text("Press Esc again to leave without saving.")).to_be_visible()
    await expect(page.get_by_label("What to remember")).to_have_value("A long thought.")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)
