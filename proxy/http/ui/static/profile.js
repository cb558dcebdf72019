// What every conversation is given, whatever it is about; and what is on its way there, or pinned by hand.

import { buttons } from "./actions.js";
import { foreign, h } from "./dom.js";
import { broken, nothing, toTry } from "./pages.js";
import { badge, typeBadge } from "./rows.js";
import { many, time } from "./words.js";

const KINDS = [
  ["rule", "How to answer", "Standing rules. Every message is given them, small talk too."],
  ["trait", "About you", "Traits that may matter for anything. Messages that may concern your life are given them."],
  ["core", "Core", "Pinned, or used so often that every message is given them."],
];

export function profile(page, root) {
  const place = h("div", { class: "sections" });
  const look = async () => {
    place.setAttribute("aria-busy", "true");
    try {
      const { data } = await page.api.get("v1/memory/profile", page.session.query, page.signal);
      place.replaceChildren(...sections(page, data, look));
    } catch (error) {
      if (error.name !== "AbortError") place.replaceChildren(broken(error, look));
    }
    place.removeAttribute("aria-busy");
  };
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Profile")),
    h("p", { class: "lead" }, "What every conversation is given, whatever it is about. Pin a memory to have it here; archive it to have it nowhere."),
    place,
  );
  look();
  return {};
}

function sections(page, entries, changed) {
  if (!entries.length)
    return [
      nothing(
        "Nothing applies to every conversation yet",
        "Rules such as “answer in French”, traits such as an allergy, and memories that you pin will be here.",
        toTry(page),
      ),
    ];
  const isCore = ({ kind, memory }) => kind === "core" || memory.core || memory.pinned;
  const of = { core: isCore, rule: (one) => one.kind === "rule" && !isCore(one), trait: (one) => one.kind === "trait" && !isCore(one) };
  return KINDS.map(([kind, title, lead]) => {
    const found = entries.filter(of[kind]);
    return found.length
      ? h(
          "section",
          {},
          h("h2", {}, title),
          h("p", { class: "hint" }, lead),
          h("ul", { class: "rows" }, found.map(({ memory }) => standing(page, memory, changed))),
        )
      : null;
  }).filter(Boolean);
}

/** Return the row of a memory with what can be done with it. */
export function standing(page, memory, changed, ...extra) {
  return h(
    "li",
    { class: "row line", tabIndex: -1, "data-row": memory.id },
    h("a", { class: "name plain-link", href: `#/memories/${encodeURIComponent(memory.id)}` }, foreign("span", memory.content)),
    h(
      "div",
      { class: "meta" },
      typeBadge(memory.type),
      memory.pinned && badge("pinned", "did-created"),
      memory.project_id && badge(memory.project_id, "project"),
      memory.uses > 0 && h("span", {}, `used in ${many(memory.uses, "answer")}`),
      extra,
      h("span", { class: "when" }, time(memory.updated_at)),
    ),
    h("div", { class: "actions" }, buttons(page, memory, changed)),
  );
}
