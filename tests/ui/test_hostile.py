"""What others wrote can neither run nor break the page: not as a memory, an id, a tag, a reason, an error."""

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.ui.conftest import LOOP, Visit
from tests.ui.fake_api import FakeApi, Row, document, entity, event, held, job, memory, receipt, session

pytestmark = pytest.mark.asyncio(loop_scope=LOOP)

RUNS = "document.title='pwned';window.pwned=1"
SCRIPTS = [
    f"<script>{RUNS}</script>",
    f'<img src=x onerror="{RUNS}">',
    f'<svg/onload="{RUNS}">',
    f'"><iframe srcdoc="<script>parent.{RUNS}</script>">',
    f"javascript:{RUNS}",
    f"</style></textarea></title><script>{RUNS}</script>",
    "<style>*{display:none}</style><base href=//evil.example><link rel=stylesheet href=//evil.example/x.css>",
    "<form action=//evil.example><button autofocus>Sign in again</button></form>",
    "{{constructor.constructor('" + RUNS + "')()}} ${" + RUNS + "}",
    f'<math><mtext></mtext><mglyph><style><!--</style><img title="--><img src=1 onerror={RUNS}>">',
]
BREAKERS = [
    "w" * 4_000,
    "\u202etxt.exe dlrow eht \u2066 unclosed \u2067 isolates",
    "before\x00after\x1b[31m\x07\u2028\u2029\ufeff",
    "👩‍👩‍👧‍👦🏳️‍🌈" * 300,
    "Z̸̢̛͎͉̪͚̺̈́̈͊͗͐͝a̷l̵g̶o̴" * 60,
    "a\n" * 1_500,
    "  \u3000 ",
]
TEXTS = SCRIPTS + BREAKERS


def hostile() -> FakeApi:
    """Return an API in which every text is an attack."""
    api = FakeApi()
    for n, text in enumerate(TEXTS, 1):
        tags = [text[:64], "<b>", "'\"&"]
        row = memory(n, text, id=f"mem_{n:06}", project_id=text[:256], tags=tags, source=text[:50])
        row["type"] = "preference" if n % 2 else "semantic"
        row["evidence"] = [{"session_id": text[:256], "exchange_id": text[:256], "span": text}]
        row["history"] = [{"at": 1, "action": text[:50], "by": text[:50], "content": text}]
        api.memories.append(row)
        more: Row = {"reason": text[:64], "evidence": text, "project_id": text[:256], "tags": tags}
        api.quarantined.append(held(n, text, **more))
        api.sessions.append(session(n, id=f"{n}{text[:200]}", project_id=text[:256], pending=1))
        api.jobs.append(
            job(n, text[:256], "dead", reason=text[:64], project_id=text[:256], user_id=text[:99])
        )
        api.receipts.append(receipt(f"{n}", {"memories": 1}, by=text[:64], project_id=text[:256]))
        api.events.append(event(n, text, became=text, action=text[:40], by=text[:64], project_id=text[:256]))
        api.entities.append(entity(n, text[:200], 1, kind=text[:20], aliases=[text[:200]]))
        api.documents.append(document(n, text[:200] or "x", text, project_id=text[:256]))
        api.contradictions.append({"id": f"{n}", "older": row, "newer": row})
    return api


async def assert_unharmed(page: Page) -> None:
    """Nothing ran, nothing was made of markup, nothing sticks out, and the frame is where it was."""
    state: dict[str, Any] = await page.evaluate(
        """() => ({
            ran: window.pwned ?? null,
            title: document.title,
            made: document.querySelectorAll("iframe, img, base, style, math, main script, main link").length,
            wide: document.documentElement.scrollWidth - innerWidth,
            main: document.querySelector("main").scrollWidth - document.querySelector("main").clientWidth,
            menu: document.querySelector("nav.menu").checkVisibility(),
        })"""
    )
    assert state["ran"] is None
    assert state["title"].endswith("Memory")
    assert state["made"] == 0
    assert state["wide"] <= 0
    assert state["main"] <= 0
    assert state["menu"]


async def test_hostile_texts_are_text_in_every_view(visit: Visit) -> None:
    api = hostile()
    visitor = await visit(api, viewport={"width": 360, "height": 800})
    page = await visitor.enter()
    await expect(page.locator("a.row")).to_have_count(len(TEXTS))
    await assert_unharmed(page)
    for place in ("quarantine", "sessions", "jobs", "receipts"):
        await page.evaluate(f"location.hash = '#/{place}'")
        await expect(page.locator("li.row")).to_have_count(len(TEXTS))
        await assert_unharmed(page)
    counts = {"profile": 9, "timeline": 17, "links/ent_1": 18, "insights": 19, "documents": 17}
    for place, rows in counts.items():
        await page.evaluate(f"location.hash = '#/{place}'")
        await visitor.settled()
        await expect(page.locator("main .row")).to_have_count(rows)
        await assert_unharmed(page)
    await page.get_by_role("link", name="Jobs").click()
    await page.get_by_label("All users").check()
    await visitor.settled()
    await assert_unharmed(page)


async def test_hostile_texts_are_text_in_a_memory_its_form_and_its_end(visit: Visit) -> None:
    visitor = await visit(hostile())
    page = await visitor.enter()
    for n, text in enumerate(TEXTS, 1):
        await page.evaluate(f"location.hash = '#/memories/mem_{n:06}'")
        await expect(page.locator(".detail")).to_have_attribute("data-id", f"mem_{n:06}")
        await visitor.settled()
        await assert_unharmed(page)
        if text in SCRIPTS:
            await expect(page.locator(".detail .whole")).to_have_text(text)
    await page.get_by_role("button", name="Edit").click()
    await assert_unharmed(page)
    await page.keyboard.press("Escape")
    await page.locator(".detail").get_by_role("button", name="Forget").click()
    await expect(page.get_by_text("This cannot be undone.")).to_be_visible()
    await assert_unharmed(page)


async def test_hostile_texts_are_text_in_a_chat_and_its_explanation(visit: Visit) -> None:
    api = hostile()
    api.memories = [*api.memories[-1:], *api.memories[:3]]
    page = await (await visit(api, viewport={"width": 360, "height": 800})).enter("try")
    texts = ["".join(SCRIPTS), "".join(BREAKERS), SCRIPTS[-1]]
    for text in texts:
        api.answer, api.memory_headers = text, {"X-Memory-Reason": SCRIPTS[0]}
        await page.get_by_label("Message", exact=True).fill(text)
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".exchange [aria-busy]")).to_have_count(0)
    for folded in await page.locator(".exchange").last.locator("summary").all():
        await folded.click()
    await expect(page.locator(".answered")).to_have_count(len(texts))
    await expect(page.locator(".said").first).to_have_text(texts[0])
    await expect(page.locator(".answered").first).to_have_text(texts[0])
    await assert_unharmed(page)


async def test_hostile_names_ids_errors_and_addresses_are_text_and_arrive_whole(visit: Visit) -> None:
    name = f"a&user_id=bob#<script>{RUNS}</script>/../ü 😀"
    api = FakeApi(memories=[memory(1, "Hers.", user_id=name)])
    api.sessions = [session(1, id="a/../../b?c#d%2e", pending=1)]
    page = await (await visit(api)).enter(user=name)
    await expect(page.locator(".brand b")).to_have_text(name)
    await expect(page.locator("a.row")).to_have_count(1)
    assert api.asked("GET", "/v1/memory")[-1][0]["user_id"] == name
    await page.get_by_role("link", name="Sessions").click()
    async with page.expect_request("**/end?*") as asked:
        await page.get_by_role("button", name="Extract now").click()
    assert "/v1/memory/sessions/a%2F..%2F..%2Fb%3Fc%23d%252e/end?" in (await asked.value).url
    error = {"error": {"message": "".join(SCRIPTS) + BREAKERS[0], "param": 'x"],[y', "code": None}}
    await page.route("**/v1/memory?*", lambda route: route.fulfill(status=400, json=error))
    await page.get_by_role("link", name="Memories", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("<script>")
    await assert_unharmed(page)
    for address in ("memories/%E0%A4%A", "<img src=x>", "__proto__/constructor", "search/%00"):
        await page.evaluate("address => { location.hash = '#/' + address; }", address)
        await page.reload()
        await expect(page.locator("nav.menu [aria-current]")).to_have_count(1)
        await assert_unharmed(page)


async def test_the_browser_refuses_scripts_styles_and_connections_of_others(visit: Visit) -> None:
    # If the policy did not hold, the tests above would still pass by the scripts' care alone.
    visitor = await visit(FakeApi(memories=[memory(1, "Tea.")]))
    page = await visitor.enter()
    refused = await page.evaluate(
        """async () => {
            const names = [];
            addEventListener("securitypolicyviolation", (event) => names.push(event.effectiveDirective));
            const image = document.createElement("img");
            image.src = "https://evil.example/x.png";
            document.body.append(image);
            await fetch("https://evil.example/").catch(() => {});
            try { document.body.innerHTML = "<b>x</b>"; } catch { names.push("sink refused"); }
            document.body.setAttribute("style", "color: red");
            await new Promise((resolve) => setTimeout(resolve, 50));
            return names;
        }"""
    )
    assert {"img-src", "connect-src", "sink refused", "style-src-attr"} <= set(refused), refused
    assert all("evil.example" in e or "style" in e or "Trusted" in e for e in visitor.errors), visitor.errors
    visitor.errors.clear()
    visitor.strays.clear()
