// All memories of one user: the first page that people see.

import { Detail } from "./detail.js";
import { choice } from "./dialogs.js";
import { h } from "./dom.js";
import { edit } from "./editor.js";
import { forgetMany, toldForgotten } from "./forget.js";
import { icon } from "./icons.js";
import { nothing, PAGE_SIZE, PagedList, toTry } from "./pages.js";
import { markOpen, memoryRow, TYPES } from "./rows.js";

const TYPING_MS = 250;
const ADDED = {
  created: "Added.",
  superseded: "Added. It replaces an older memory.",
  confirmed: "That was known already, and is confirmed now.",
};

/** Show the view; returns what the frame calls: `route` with the id in the address, and its keys. */
export function memories(page, root) {
  page.state.filter ??= { text: "", type: "", project: "", inactive: false };
  const list = new PagedList({
    label: "Memories",
    noun: ["memory", "memories"],
    signal: page.signal,
    load: (after, signal) =>
      page.api.get("v1/memory", listQuery(page, after), signal).then((answer) => noted(page, answer)),
    row: (memory) => memoryRow(memory, `#/memories/${encodeURIComponent(memory.id)}`),
    empty: () => emptied(page, add, () => reset()),
  });
  const detail = new Detail(page, "memories", () => list.reload().then(() => markOpen(list.list, detail.id)));
  const tools = filters(page, () => list.first());
  const add = async () => {
    const saved = await edit(page, null);
    if (!saved) return;
    page.say(ADDED[saved.change] ?? ADDED.created);
    page.go(`memories/${encodeURIComponent(saved.id)}`);
    await list.first();
    markOpen(list.list, detail.id);
  };
  const forget = async () => {
    const answer = await forgetMany(page);
    if (!answer) return;
    toldForgotten(page, answer);
    page.go("memories");
    list.first();
  };
  const reset = () => {
    page.state.filter = { text: "", type: "", project: "", inactive: false };
    tools.fill();
    list.first();
  };
  const buttons = h(
    "div",
    { class: "actions" },
    h("button", { type: "button", class: "primary", on: { click: add } }, icon("add"), "Add"),
    h("button", { type: "button", class: "danger", on: { click: forget } }, "Forget …"),
  );
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Memories"), buttons),
    h(
      "div",
      { class: "split" },
      h("div", { class: "list-side" }, tools.element, list.element),
      detail.element,
    ),
  );
  const loaded = list.first();
  const route = async (id) => {
    await Promise.all([detail.open(id), loaded]);
    markOpen(list.list, detail.id);
  };
  const keys = { e: () => detail.edit(), Delete: () => detail.forget(), a: () => detail.archive(), p: () => detail.pin(), n: add };
  return { route, keys, find: tools.text, turn: (step) => list.turn(step), closes: "memories" };
}

function listQuery(page, after) {
  const { text, type, project, inactive } = page.state.filter;
  return {
    ...page.session.query,
    q: text.trim(),
    type,
    project_id: project.trim(),
    include: inactive ? "inactive" : "",
    limit: PAGE_SIZE,
    after,
  };
}

/** Keep the names of the projects seen, to offer them in forms. */
function noted(page, answer) {
  page.offerProjects(answer.data.map((memory) => memory.project_id));
  return answer;
}

function filters(page, changed) {
  const text = h("input", {
    type: "search",
    placeholder: "Filter by text",
    "aria-label": "Filter by text",
    autocomplete: "off",
    "aria-keyshortcuts": "/",
  });
  const type = choice([["", "All types"], ...TYPES], "", { "aria-label": "Type" });
  const project = h("input", {
    type: "search",
    placeholder: "Project",
    "aria-label": "Project",
    list: "projects",
    autocomplete: "off",
  });
  const inactive = h("input", { type: "checkbox" });
  const fill = () => {
    text.value = page.state.filter.text;
    type.value = page.state.filter.type;
    project.value = page.state.filter.project;
    inactive.checked = page.state.filter.inactive;
  };
  const apply = () => {
    page.state.filter = {
      text: text.value,
      type: type.value,
      project: project.value,
      inactive: inactive.checked,
    };
    changed();
  };
  let typing = 0;
  const soon = () => {
    clearTimeout(typing);
    typing = setTimeout(apply, TYPING_MS);
  };
  page.signal.addEventListener("abort", () => clearTimeout(typing));
  for (const control of [text, project]) control.addEventListener("input", soon);
  for (const control of [type, inactive]) control.addEventListener("change", apply);
  fill();
  const element = h(
    "div",
    { class: "filters", role: "search" },
    text,
    type,
    project,
    h("label", { class: "check" }, inactive, "Inactive, too"),
  );
  return { element, text, fill };
}

function emptied(page, add, reset) {
  const { text, type, project } = page.state.filter;
  if (text || type || project) {
    return nothing(
      "Nothing matches",
      "No memory fits this filter.",
      h("button", { type: "button", on: { click: reset } }, "Clear the filter"),
    );
  }
  return nothing(
    "Nothing is remembered yet",
    "Memories come from conversations through the proxy. Chat here and watch, or add one by hand.",
    toTry(page),
    h("button", { type: "button", on: { click: add } }, "Add a memory"),
  );
}
