// Memories in time: what happened to them, the latest first, or what was remembered on a day.

import { choice } from "./dialogs.js";
import { foreign, h } from "./dom.js";
import { nothing, PAGE_SIZE, PagedList, toTry } from "./pages.js";
import { badge, memoryRow, shortened, typeBadge } from "./rows.js";
import { clock, day, how, plain } from "./words.js";

const SHOWN_CHARS = 300;
const VIEWS = [
  ["changes", "What changed"],
  ["as_of", "What was remembered"],
];

export function timeline(page, root) {
  const view = choice(VIEWS, "changes", { "aria-label": "Show" });
  const date = (words) => h("input", { type: "date", "aria-label": words });
  const [since, until, asOf] = [date("From"), date("To"), date("On")];
  const project = h("input", { type: "search", placeholder: "Project", "aria-label": "Project", list: "projects", autocomplete: "off" });
  const filter = () => ({ ...page.session.query, project_id: project.value.trim(), limit: PAGE_SIZE });
  const shown = () => (view.value === "changes" ? changes : memories);
  let last = null; // the day of the row above
  const changes = new PagedList({
    label: "Changes",
    noun: ["change", "changes"],
    signal: page.signal,
    load: (after, signal) => {
      last = null;
      const query = { ...filter(), since: since.value, until: until.value, after };
      return page.api.get("v1/memory/timeline", query, signal);
    },
    row: (event) => {
      const today = day(event.at);
      const heading = today === last ? null : h("h2", { class: "day" }, today);
      last = today;
      return change(event, heading);
    },
    empty: () => nothing("Nothing happened", "No memory was added or changed in this time.", toTry(page)),
  });
  const memories = new PagedList({
    label: "Memories of that day",
    noun: ["memory", "memories"],
    signal: page.signal,
    load: (after, signal) => page.api.get("v1/memory", { ...filter(), as_of: asOf.value, after }, signal),
    row: (memory) => memoryRow(memory, `#/memories/${encodeURIComponent(memory.id)}`),
    empty: () => nothing("Nothing was remembered", "There were no memories on that day."),
  });
  const place = h("div", {});
  const range = h("span", { class: "range" }, h("label", {}, "from ", since), h("label", {}, "to ", until));
  const moment = h("label", { class: "range" }, "on ", asOf);
  const refresh = () => {
    const isRange = view.value === "changes";
    range.hidden = !isRange;
    moment.hidden = isRange;
    place.replaceChildren(shown().element);
    shown().first();
  };
  for (const control of [view, since, until, asOf, project]) control.addEventListener("change", refresh);
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Timeline")),
    h("p", { class: "lead" }, "Nothing is overwritten: an old value stays here, with the day on which it was replaced."),
    h("div", { class: "filters" }, view, range, moment, project),
    place,
  );
  asOf.value = new Date().toISOString().slice(0, 10);
  refresh();
  return { turn: (step) => shown().turn(step) };
}

function change(event, heading) {
  const content = foreign("span", shortened(event.content, SHOWN_CHARS), { class: event.became ? "past" : "" });
  return h(
    "li",
    { class: "event" },
    heading,
    h(
      "a",
      { class: "row", href: `#/memories/${encodeURIComponent(event.memory_id)}`, "data-row": event.id },
      h("p", { class: "content" }, content, event.became && [" → ", foreign("span", shortened(event.became, SHOWN_CHARS))]),
      h(
        "div",
        { class: "meta" },
        badge(plain(event.action), `did-${event.action}`),
        typeBadge(event.type),
        event.project_id && badge(event.project_id, "project"),
        h("span", {}, how(event) ?? plain(event.by)),
        h("span", { class: "when" }, clock(event.at)),
      ),
    ),
  );
}
