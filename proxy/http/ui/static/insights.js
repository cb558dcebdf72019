// How memory develops: growth by day, use, what fades, what contradicts, and what was archived.

import { buttons } from "./actions.js";
import { segment } from "./api.js";
import { foreign, h } from "./dom.js";
import { field } from "./dialogs.js";
import { broken, nothing, PAGE_SIZE, PagedList, toTry } from "./pages.js";
import { bars, shares } from "./plots.js";
import { standing } from "./profile.js";
import { badge } from "./rows.js";
import { count, plain, time } from "./words.js";

const DAYS = 30; // uses and changes: of the last days
const TILES = [
  ["active", "current"],
  ["core", "core"],
  ["pinned", "pinned"],
  ["used", "times used"],
  ["unused", "times not used"],
  ["archived", "archived"],
];
const GROWTH = [
  ["added", "added"],
  ["superseded", "superseded"],
  ["archived", "archived"],
];
// The user's own settings: what happens in the background, and how fast.
const PARTS = [
  ["enabled", "Let my memories change over time"],
  ["use", "Archive what answers are given but do not use"],
  ["decay", "Let fade what is not used for long"],
  ["consolidate", "Merge memories that belong together"],
  ["reflect", "Draw conclusions from several memories"],
  ["contradictions", "Find contradictions"],
  ["links", "Follow names from one memory to another"],
];
const MEASURES = [
  ["grace_days", "Fading begins after days without use", 0, 36_500],
  ["half_life_days", "Half the importance is gone after days", 0, 36_500],
  ["core_above", "Core above a weight of", 1, 100],
];
const DECISIONS = [
  ["newer", "Keep the newer"],
  ["older", "Keep the older"],
  ["both", "Keep both"],
];

export function insights(page, root) {
  const numbers = h("div", { class: "sections" });
  const open = h("section", { class: "undecided", hidden: true });
  const rest = h("div", { hidden: true });
  const settings = h("details", { class: "settings" }, h("summary", {}, "Settings: how my memories change"));
  const archived = archivedList(page, () => look());
  const look = async () => {
    numbers.setAttribute("aria-busy", "true");
    try {
      const query = { ...page.session.query, days: DAYS };
      const found = await page.api.get("v1/memory/insights", query, page.signal);
      const isEmpty = !found.active && !found.archived;
      rest.hidden = isEmpty;
      numbers.replaceChildren(...(isEmpty ? [unborn(page)] : sections(page, found, look)));
    } catch (error) {
      if (error.name !== "AbortError") numbers.replaceChildren(broken(error, look));
    }
    numbers.removeAttribute("aria-busy");
    archived.first();
  };
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Insights")),
    open,
    numbers,
    rest,
    settings,
  );
  rest.append(h("h2", {}, "Archived"), h("p", { class: "hint" }, "Not used in answers any more, and not lost."), archived.element);
  look();
  settings.addEventListener("toggle", () => settings.open && showSettings(page, settings));
  showContradictions(page, open);
  return { turn: (step) => archived.turn(step) };
}

function unborn(page) {
  return nothing(
    "No numbers yet",
    "Once something is remembered, you see here what is added, used, fading and archived.",
    toTry(page),
  );
}

/** Show the user's own settings in `place`; each change is stored at once. */
async function showSettings(page, place, change = null, changed = null) {
  const [path, query] = ["v1/memory/settings", page.session.query];
  let answer;
  try {
    answer = await (change ? page.api.put(path, { query, body: change }) : page.api.get(path, query, page.signal));
    if (change) page.say(refused(answer, changed) ? "The operator of the proxy switched this off." : "Saved.");
  } catch (error) {
    page.fail(error);
    if (!change) return;
    return showSettings(page, place); // what is in effect
  }
  const { own, settings } = answer;
  const set = (name, value) => showSettings(page, place, { ...own, [name]: value }, name);
  const part = ([name, words]) => {
    const box = h("input", { type: "checkbox", name, checked: settings[name] });
    box.addEventListener("change", () => set(name, box.checked));
    return h("li", {}, h("label", { class: "check" }, box, words));
  };
  const measure = ([name, words, min, max]) => {
    const number = h("input", { type: "number", name, value: settings[name], min, max, step: "any" });
    number.addEventListener("change", () => set(name, number.value === "" ? null : number.valueAsNumber));
    return field(words, number);
  };
  const reset = h("button", { type: "button", on: { click: () => showSettings(page, place, {}) } }, "Use the proxy’s settings");
  place.replaceChildren(
    place.firstElementChild,
    h("div", { class: "panel" }, h("ul", {}, PARTS.map(part)), h("div", { class: "columns" }, MEASURES.map(measure)), h("div", { class: "actions" }, reset)),
  );
  if (changed) place.querySelector(`[name=${changed}]`).focus();
}

/** True if the user switched on what the server has off. */
function refused({ own, settings }, name) {
  return own[name] === true && settings[name] === false;
}

function sections(page, found, changed) {
  const types = Object.entries(found.by_type).filter(([, number]) => number > 0);
  return [
    h(
      "dl",
      { class: "tiles" },
      TILES.map(([name, words]) => h("div", {}, h("dt", {}, words), h("dd", {}, count(found[name] ?? 0)))),
    ),
    h(
      "div",
      { class: "panels" },
      bars(`Changes in ${DAYS} days`, found.by_day, GROWTH),
      bars("Memories that answers used", found.by_day, [["used", "used"]]),
      types.length > 0 && shares("By type", types.map(([type, number]) => [plain(type), number])),
    ),
    h(
      "section",
      {},
      h("h2", {}, "Fading"),
      h("p", { class: "hint" }, "Not used for long. They will be archived on the day named here; pinned ones never are."),
      found.fading.length
        ? h(
            "ul",
            { class: "rows" },
            found.fading.map((memory) => standing(page, memory, changed, h("span", { class: "due" }, "fades ", time(memory.fades_at)))),
          )
        : h("p", { class: "hint" }, "Nothing fades at the moment."),
    ),
  ];
}

function archivedList(page, changed) {
  const list = new PagedList({
    label: "Archived memories",
    noun: ["archived memory", "archived memories"],
    signal: page.signal,
    load: (after, signal) =>
      page.api.get("v1/memory", { ...page.session.query, archived: "true", limit: PAGE_SIZE, after }, signal),
    row: (memory) => standing(page, memory, changed, badge("archived", "state-mark")),
    empty: () => nothing("Nothing is archived", "What is not used for long will be here, and can be restored."),
  });
  return list;
}

/** Show the pairs that cannot both hold, with what can be decided. Without the endpoint there are none. */
async function showContradictions(page, place) {
  const look = () => showContradictions(page, place);
  let found;
  try {
    found = await page.api.get("v1/memory/contradictions", { ...page.session.query, limit: PAGE_SIZE }, page.signal);
  } catch (error) {
    if (error.name !== "AbortError" && error.status !== 404) page.fail(error);
    return;
  }
  const decide = async (pair, keep) => {
    try {
      const path = `v1/memory/contradictions/${segment(pair.id)}`;
      await page.api.post(path, { query: page.session.query, body: { keep } });
      page.say("Decided.");
      await look();
    } catch (error) {
      page.fail(error);
    }
  };
  page.waiting("insights", found.data.length > 0 && "something to decide");
  place.hidden = !found.data.length;
  place.replaceChildren(
    h("h2", {}, "Which of these still holds?"),
    h("p", { class: "hint" }, "These memories seem to contradict each other. Until you decide, both are in use."),
    h("ul", { class: "rows" }, found.data.map((pair) => contradiction(pair, decide))),
  );
}

function contradiction(pair, decide) {
  const side = (memory, words) =>
    h(
      "div",
      {},
      h("p", { class: "hint" }, words, " ", time(memory.valid_from ?? memory.created_at)),
      foreign("p", memory.content),
    );
  return h(
    "li",
    { class: "row card", tabIndex: -1, "data-row": pair.id },
    h("div", { class: "columns" }, side(pair.older, "Older:"), side(pair.newer, "Newer:")),
    h(
      "div",
      { class: "actions" },
      DECISIONS.map(([keep, words]) => h("button", { type: "button", on: { click: () => decide(pair, keep) } }, words)),
    ),
  );
}
