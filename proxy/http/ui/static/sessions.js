// The stored conversations, without their content.

import { segment } from "./api.js";
import { foreign, h } from "./dom.js";
import { nothing, PAGE_SIZE, PagedList, toTry } from "./pages.js";
import { badge } from "./rows.js";
import { many, time } from "./words.js";

export function sessions(page, root) {
  const list = new PagedList({
    label: "Sessions",
    noun: ["session", "sessions"],
    signal: page.signal,
    load: (after, signal) =>
      page.api.get("v1/memory/sessions", { ...page.session.query, limit: PAGE_SIZE, after }, signal),
    row: (session) => row(session, () => end(session)),
    empty: () =>
      nothing("No sessions", "A session begins with the first message that goes through the proxy.", toTry(page)),
  });
  const end = async (session) => {
    try {
      const query = { ...page.session.query, project_id: session.project_id };
      const answer = await page.api.post(`v1/memory/sessions/${segment(session.id)}/end`, { query });
      const queued = answer.queued_exchanges;
      page.say(
        queued ? `${many(queued, "exchange")} queued for extraction.` : "Nothing was left to extract.",
      );
      await list.reload();
    } catch (error) {
      page.fail(error);
    }
  };
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Sessions")),
    h(
      "p",
      { class: "lead" },
      "Conversations are read for facts after a pause. “Extract now” does it at once.",
    ),
    list.element,
  );
  list.first();
  return { turn: (step) => list.turn(step) };
}

function row(session, end) {
  const pending = session.pending ?? 0;
  return h(
    "li",
    { class: "row line", tabIndex: -1, "data-row": session.id },
    foreign("code", session.id, { class: "name" }),
    h(
      "div",
      { class: "meta" },
      session.project_id && badge(session.project_id, "project"),
      h("span", {}, many(session.exchanges ?? 0, "exchange")),
      h("span", { class: pending ? "due" : "" }, pending ? `${pending} not read yet` : "all read"),
      h("span", { class: "when" }, "last used ", time(session.last_at)),
    ),
    pending > 0 && h("button", { type: "button", on: { click: end } }, "Extract now"),
  );
}
