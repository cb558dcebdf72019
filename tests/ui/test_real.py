"""The page in front of the proxy itself, with a store, an embedder and a scripted model behind it."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from playwright.async_api import Page, expect

from proxy.domain.changes import Consolidate, Flag
from proxy.domain.core import MemoryFilter, Scope
from proxy.storage.sqlite import SqliteStores
from tests.e2e.conftest import Houses, house, models_dir  # noqa: F401
from tests.support.model import ScriptedModel, known
from tests.support.upstream import Exchange
from tests.ui.conftest import LOOP, Visit, Visitor

pytestmark = pytest.mark.asyncio(loop_scope=LOOP)


class Listed(ScriptedModel):
    """A model whose server lists it."""

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.method == b"GET":
            await exchange.json({"object": "list", "data": [{"id": "some-model"}]})
        else:
            await super().__call__(exchange)


async def add(page: Page, content: str, type_: str = "semantic") -> None:
    """Add a memory by hand."""
    await page.get_by_role("button", name="Add", exact=True).first.click()
    await page.get_by_label("What to remember").fill(content)
    await page.get_by_label("Type").last.select_option(type_)
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".detail .whole")).to_have_text(content)


async def test_a_life_of_a_memory_from_the_first_word_to_its_receipt(
    visit: Visit,
    house: Houses,  # noqa: F811
) -> None:
    async with house(Listed("All right.")) as real:
        visitor = await visit(real.origin)
        page = await visitor.enter()
        await expect(page.get_by_role("heading", name="Nothing is remembered yet")).to_be_visible()
        await add(page, "Prefers window seats on every flight.", "preference")
        await add(page, "Works for a bridge office in Rotterdam.")
        await _correct(page)
        await _search(page)
        await _over_time(page)
        await _walk(visitor)
        await _take_along(page, visitor)


async def _correct(page: Page) -> None:
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_label("What to remember").fill("Works for a bridge office in Antwerp.")
    await page.get_by_label("Project", exact=True).last.fill("work")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".detail .whole")).to_have_text("Works for a bridge office in Antwerp.")
    await expect(page.locator(".timeline .past").last).to_have_text("Works for a bridge office in Rotterdam.")
    await expect(page.locator(".timeline .past").nth(1)).to_have_text(
        "→ Works for a bridge office in Antwerp."
    )
    await page.get_by_role("button", name="Archive").click()
    await expect(page.get_by_text("1 memory")).to_be_visible()
    await page.get_by_role("button", name="Restore").click()
    await expect(page.get_by_text("2 memories")).to_be_visible()


async def _search(page: Page) -> None:
    await page.get_by_role("link", name="Search").click()
    await page.get_by_label("Message").fill("Where should I sit on the plane?")
    await page.keyboard.press("Enter")
    await expect(page.locator("a.row").first).to_contain_text("window seats")
    await expect(page.locator(".why").first).not_to_be_empty()


async def _over_time(page: Page) -> None:
    """See the correction in the timeline, what the memory names, and a document that is asked about."""
    await page.get_by_role("link", name="Timeline").click()
    corrected = "Works for a bridge office in Rotterdam. → Works for a bridge office in Antwerp."
    await expect(page.locator("li.event").filter(has_text=corrected)).to_have_count(1)
    await page.get_by_label("Show").select_option("What was remembered")
    await expect(page.locator("a.row")).to_have_count(2)
    await page.get_by_role("link", name="Links").click()
    await page.locator(".entities").get_by_role("link", name="Antwerp").click()
    await expect(page.locator(".of-entity a.row")).to_contain_text(["Works for a bridge office in Antwerp."])
    await page.locator(".of-entity a.row").click()
    await expect(page.locator(".detail .whole")).to_be_visible()
    await page.keyboard.press("p")
    await expect(page.locator(".timeline strong").first).to_have_text("pinned")
    await page.get_by_role("link", name="Profile").click()
    await expect(page.locator("section li").filter(has_text="Antwerp")).to_contain_text("pinned")
    await page.get_by_role("link", name="Insights").click()
    await expect(page.locator(".tiles > div").filter(has_text="pinned").locator("dd")).to_have_text("1")
    await page.get_by_text("Settings: how my memories change").click()
    await page.get_by_label("Let fade what is not used").uncheck()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    await page.get_by_label("Follow names").check()
    await expect(page.get_by_text("The operator of the proxy switched this off.")).to_be_visible()
    await page.get_by_label("Fading begins").fill("7")
    await page.get_by_label("Fading begins").press("Enter")
    await expect(page.get_by_text("Saved.")).to_be_visible()
    await page.reload()
    await page.get_by_text("Settings: how my memories change").click()
    await expect(page.get_by_label("Let fade what is not used")).not_to_be_checked()
    await expect(page.get_by_label("Fading begins")).to_have_value("7")
    await page.get_by_role("button", name="Use the proxy’s settings").click()
    await expect(page.get_by_label("Let fade what is not used")).to_be_checked()
    await page.get_by_role("link", name="Documents").click()
    await page.get_by_role("button", name="Add", exact=True).click()
    await page.get_by_label("Name").fill("Handbook")
    await page.get_by_label("Text", exact=True).fill("# Meals\n\nThe daily allowance for meals is 45 euros.")
    await page.get_by_role("dialog").get_by_role("button", name="Add").click()
    await expect(page.locator("li.row")).to_contain_text(["Handbook"])
    await page.get_by_role("link", name="Try it").click()
    await page.get_by_text("Model and options").click()
    await page.get_by_label("Remember what I say here").uncheck()
    await page.get_by_label("Message", exact=True).fill("What is the daily allowance for meals?")
    await page.keyboard.press("Enter")
    await expect(page.locator(".given li .badge.project")).to_have_text("Handbook › Meals")
    await expect(page.get_by_text("Nothing of this exchange is stored.")).to_be_visible()


async def _walk(visitor: Visitor) -> None:
    texts = {"quarantine": "Nothing to review", "sessions": "No sessions", "jobs": "No jobs"}
    for place, words in texts.items():
        await visitor.page.evaluate(f"location.hash = '#/{place}'")
        await expect(visitor.page.get_by_role("heading", name=words)).to_be_visible()
    await visitor.page.get_by_label("All users").check()
    await visitor.settled()
    await expect(visitor.page.get_by_role("alert")).to_have_count(0)
    await visitor.page.get_by_role("link", name="Health", exact=True).click()
    await expect(visitor.page.get_by_role("heading", name="All of memory works")).to_be_visible()


async def _take_along(page: Page, visitor: Visitor) -> None:
    """Export, forget all, see the receipt, and bring it back."""
    await page.get_by_role("link", name="Export, import").click()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export").click()
    exported = (await (await download.value).path()).read_bytes()
    lines: list[dict[str, Any]] = [json.loads(line) for line in exported.splitlines()]
    assert {line["project_id"] for line in lines} == {None, "work"}
    await page.get_by_role("link", name="Memories", exact=True).click()
    await page.get_by_role("button", name="Forget …").click()
    await expect(page.get_by_role("dialog").get_by_text("2 memories")).to_be_visible()
    await page.get_by_label("Type “forget” to confirm").fill("forget")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Forgotten: 2 memories")).to_be_visible()
    await page.get_by_role("link", name="Receipts").click()
    await expect(page.locator("li.row")).to_have_count(1)
    await expect(page.locator("li.row")).to_contain_text("in open mode")
    await page.get_by_role("link", name="Export, import").click()
    file = {"name": "m.ndjson", "mimeType": "application/x-ndjson", "buffer": exported}
    await page.get_by_label("File").set_input_files(file)  # type: ignore[arg-type]
    await page.get_by_role("button", name="Import").click()
    await expect(page.get_by_text("2 imported, 0 there already, 0 refused.")).to_be_visible()
    await page.get_by_role("link", name="Memories", exact=True).click()
    await expect(page.locator("a.row")).to_have_count(2)


async def test_a_chat_shows_what_the_model_was_given_and_what_was_learned(
    visit: Visit,
    house: Houses,  # noqa: F811
) -> None:
    model = Listed("Lentils.", known(("peanuts", "User is allergic to peanuts.")))
    async with house(model) as real:
        page = await (await visit(real.origin)).enter("try")
        exchange = page.locator(".exchange").last
        for said in ("Peanuts make me ill: I am allergic to peanuts.", "What could I cook for dinner?"):
            await page.get_by_label("Message", exact=True).fill(said)
            await page.keyboard.press("Enter")
            await expect(exchange.locator(".answered")).to_have_text("Lentils.")
            if "ill" in said:
                await expect(exchange).to_contain_text(
                    "The model was given nothing: nothing is remembered yet."
                )
                await expect(exchange.locator(".learned li")).to_contain_text(
                    ["User is allergic to peanuts."]
                )
                await page.get_by_role("button", name="New conversation").click()
        await expect(exchange.locator(".headline")).to_contain_text("The model was given 1 memory")
        await expect(exchange.locator(".given li")).to_contain_text(["User is allergic to peanuts."])
        await exchange.get_by_text("The block as it is sent").click()
        block = await exchange.locator("pre").text_content()
        sent = model.chats[-1].json
        assert [m["content"] for m in sent["messages"]] == [block, "What could I cook for dinner?"]
        assert (sent["model"], sent["stream"]) == ("some-model", True)
        await exchange.locator(".given a").click()
        await expect(page.locator(".detail .whole")).to_have_text("User is allergic to peanuts.")
        await page.get_by_role("link", name="Try it").click()
        await expect(exchange.locator(".answered")).to_have_text("Lentils.")


ADA = Scope("default", "ada")
SOURCES = ("Grows figs on the balcony.", "Paid 40 euros for a plum tree in May.")


async def test_what_the_background_made_is_undone_and_what_it_flagged_is_decided(
    visit: Visit,
    house: Houses,  # noqa: F811
    tmp_path: Path,
) -> None:
    async with house(Listed()) as real:
        page = await (await visit(real.origin)).enter()
        for content in (*SOURCES, "Never drinks coffee.", "Has a red bicycle."):
            await add(page, content)
        stores = SqliteStores(tmp_path / "data")
        await stores.open()
        held = {m.content: m for m in (await stores.memories.list(where(), limit=9)).items}
        figs, tree, never, bicycle = sorted(held.values(), key=lambda memory: memory.created_at)
        made = replace(figs, id="mem_c", content="Has a fig and a plum tree.", source="consolidated")
        made = replace(made, sources=(figs.id, tree.id))
        changes = [Consolidate(made.sources, made, None), Flag(never.id, bicycle.id, 0.6, made.created_at)]
        await stores.memories.apply(ADA, changes, expect=await stores.memories.stamp(ADA))
        await stores.close()
        await page.get_by_role("link", name="Insights").click()
        await page.get_by_role("button", name="Keep the older").click()
        await expect(page.get_by_text("Decided.")).to_be_visible()
        await page.get_by_role("link", name="Memories", exact=True).click()
        await expect(page.locator("a.row")).to_have_count(2)
        await page.locator("a.row").filter(has_text="a plum tree").click()
        await expect(page.locator(".sources a")).to_have_text(list(SOURCES))
        await page.get_by_role("button", name="Undo").click()
        await expect(page.locator("a.row .content")).to_have_text(
            ["Never drinks coffee.", *reversed(SOURCES)]
        )


def where() -> MemoryFilter:
    """Return what holds Ada's memories."""
    return MemoryFilter(tenant=ADA.tenant, user=ADA.user, now=time.time())


def token(secret: str, user: str) -> str:
    return jwt.encode({"aud": "app", "exp": time.time() + 600, "sub": user}, secret, "HS256")


async def test_a_token_opens_the_memories_of_its_own_user_only(
    visit: Visit,
    house: Houses,  # noqa: F811
) -> None:
    secret = "a-shared-secret-of-at-least-32-bytes"
    identity = {"mode": "jwt", "jwt_secret": secret, "jwt_audience": "app"}
    async with house(identity=identity) as real:
        page = (await visit(real.origin)).page
        await page.goto(f"{real.origin}/ui")
        await page.get_by_label("Key or token").fill(token("another secret, of somebody else, too", "ada"))
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("not accepted")).to_be_visible()
        for user in ("ada", "bob"):
            await page.get_by_label("Key or token").fill(token(secret, user))
            await page.keyboard.press("Enter")
            await expect(page.locator(".brand b")).to_have_text(user)
            await expect(page.get_by_role("heading", name="Nothing is remembered yet")).to_be_visible()
            await add(page, f"The secret of {user} is a red bicycle.")
            await page.get_by_role("button", name="Sign out").click()
