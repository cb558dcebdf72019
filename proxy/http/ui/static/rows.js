// A memory in a list, and the small marks that go with it.

import { foreign, h, visible } from "./dom.js";
import { plain, time } from "./words.js";

export const TYPES = [
  ["preference", "Preference"],
  ["semantic", "Semantic"],
  ["episodic", "Episodic"],
  ["procedural", "Procedural"],
  ["reflective", "Reflective"],
];
const KNOWN_TYPES = new Set(TYPES.map(([name]) => name));
const SHOWN_CHARS = 400;
const SHOWN_TAGS = 3;
const CUT_CHARS = 24; // a longer mark may be cut off

/** Return a small mark; types have a color of their own. */
export function badge(text, kind = "") {
  const title = String(text).length > CUT_CHARS ? visible(text) : null;
  return foreign("span", text, { class: `badge ${kind}`, title });
}

export function typeBadge(type) {
  return badge(plain(type), KNOWN_TYPES.has(type) ? `type-${type}` : "");
}

/** Return why a memory is no longer used: "superseded", "archived", "expired", or "" where it is. */
export function inactive(memory, now = Date.now() / 1000) {
  if (memory.superseded_by) return "superseded";
  if (memory.archived) return "archived";
  return memory.expires_at && memory.expires_at <= now ? "expired" : "";
}

/** Return the link that a memory is in a list, with `extra` below it. */
export function memoryRow(memory, href, ...extra) {
  const state = inactive(memory);
  const tags = memory.tags ?? [];
  return h(
    "li",
    {},
    h(
      "a",
      { class: `row ${state ? "inactive" : ""}`, href, "data-row": memory.id },
      foreign("p", shortened(memory.content), { class: "content" }),
      h(
        "div",
        { class: "meta" },
        typeBadge(memory.type),
        state && badge(state, "state-mark"),
        memory.project_id && badge(memory.project_id, "project"),
        tags.slice(0, SHOWN_TAGS).map((tag) => badge(tag, "tag")),
        tags.length > SHOWN_TAGS && h("span", { class: "more" }, `+${tags.length - SHOWN_TAGS}`),
        h("span", { class: "when" }, time(memory.updated_at ?? memory.created_at)),
      ),
      extra,
    ),
  );
}

/** Return the beginning of a text that is too long for a list. */
export function shortened(text, chars = SHOWN_CHARS) {
  return text.length > chars ? `${[...text.slice(0, chars)].slice(0, -1).join("")}…` : text;
}

/** Mark the row of the open memory. */
export function markOpen(list, id) {
  for (const row of list.querySelectorAll("[data-row]")) {
    if (row.dataset.row === id) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }
}
