// The form that adds a memory, or corrects one.

import { segment } from "./api.js";
import { choice, complaints, dialog, field, form, working } from "./dialogs.js";
import { h } from "./dom.js";
import { TYPES } from "./rows.js";

const CONCLUDED = "reflective"; // by the proxy from other memories, never stated
const STATED = TYPES.filter(([name]) => name !== CONCLUDED);
const MAX_CHARS = 4000; // as the API has it

/** Let a person add a memory (`memory` null) or correct it; resolves to the memory as it then is, or null. */
export function edit(page, memory) {
  const guard = { typed: false, warned: false, warn: null };
  const holds = () => {
    if (!guard.typed || guard.warned) return false;
    guard.warned = true;
    guard.warn();
    return true;
  };
  const title = memory ? "Edit memory" : "Add a memory";
  return dialog(title, (close) => editor(page, memory, close, guard), { wide: true, holds });
}

/** Return the form. `guard` learns of what was typed, so that a slip of the finger does not lose it. */
function editor(page, memory, close, guard) {
  const controls = makeControls(page, memory);
  const before = read(controls);
  const problems = complaints(() => element);
  const save = () =>
    working(element, problems, async () => {
      const body = memory ? changes(before, read(controls)) : created(before, read(controls));
      if (memory && !Object.keys(body).length) return close(null);
      if (memory)
        return close(
          await page.api.patch(`v1/memory/${segment(memory.id)}`, { query: page.session.query, body }),
        );
      return close(await page.api.post("v1/memory", { body: { ...body, ...page.session.query } }));
    });
  const element = form(
    { class: "editor" },
    save,
    layout(controls),
    problems.place,
    h(
      "footer",
      {},
      h("button", { type: "button", on: { click: () => close(null) } }, "Cancel"),
      h("button", { type: "submit", class: "primary" }, memory ? "Save" : "Add"),
    ),
  );
  guard.warn = () => problems.say({ title: "Not saved", text: "Press Esc again to leave without saving." });
  element.addEventListener("input", () => Object.assign(guard, { typed: true, warned: false }));
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element.requestSubmit();
  });
  return element;
}

function makeControls(page, memory) {
  const project = h("input", {
    value: (memory ? memory.project_id : page.state.filter?.project) ?? "",
    list: "projects",
    autocomplete: "off",
    maxlength: 256,
  });
  return {
    content: h("textarea", {
      value: memory?.content ?? "",
      rows: 5,
      maxlength: MAX_CHARS,
      required: true,
      dir: "auto",
      autofocus: true,
    }),
    type: choice(memory?.type === CONCLUDED ? TYPES : STATED, memory?.type ?? "semantic"),
    project,
    tags: h("input", { value: (memory?.tags ?? []).join(", "), autocomplete: "off" }),
    importance: h("input", {
      type: "number",
      min: 0,
      max: 1,
      step: 0.05,
      value: String(memory?.importance ?? 0.5),
      inputmode: "decimal",
    }),
    expires: h("input", { type: "datetime-local", value: localTime(memory?.expires_at) }),
  };
}

function layout(c) {
  return [
    field("What to remember", c.content, {
      param: "content",
      hint: "One fact, as a sentence. Secrets are refused.",
    }),
    h(
      "div",
      { class: "columns" },
      field("Type", c.type, { param: "type" }),
      field("Project", c.project, { param: "project_id", hint: "Empty: none, it counts everywhere." }),
      field("Tags", c.tags, { param: "tags", hint: "Separated by commas." }),
      field("Importance", c.importance, {
        param: "importance",
        hint: "0 to 1; the weakest go first at a quota.",
      }),
      field("Expires", c.expires, { param: "expires_at", hint: "Empty: never." }),
    ),
  ];
}

function read(c) {
  return {
    content: c.content.value,
    type: c.type.value,
    project_id: c.project.value.trim() || null,
    tags: [
      ...new Set(
        c.tags.value
          .split(",")
          .map((tag) => tag.trim())
          .filter(Boolean),
      ),
    ],
    importance: c.importance.value ? Number(c.importance.value) : null,
    expires_at: c.expires.value ? Math.round(new Date(c.expires.value).getTime() / 1000) : null,
  };
}

/** Return what was filled in for a new memory. Unchanged fields are left out, so that an existing memory keeps its own. */
function created(before, values) {
  const { content, project_id } = values;
  const said = { content, project_id, ...changes(before, values) };
  return Object.fromEntries(Object.entries(said).filter(([, value]) => value !== null));
}

/**
 * Return only what was changed, so that nothing else is touched. Compared with what the form held at first: it
 * shows times to the minute, line ends as one, a tag with a comma as two.
 */
function changes(before, values) {
  return Object.fromEntries(
    Object.entries(values).filter(([name, value]) => JSON.stringify(before[name]) !== JSON.stringify(value)),
  );
}

function localTime(at) {
  if (typeof at !== "number") return "";
  const date = new Date(at * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
