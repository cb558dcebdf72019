// Handbooks and notes that answers may quote: upload, look at, delete.

import { segment } from "./api.js";
import { choice, complaints, dialog, field, form, working } from "./dialogs.js";
import { foreign, h } from "./dom.js";
import { icon } from "./icons.js";
import { nothing, PAGE_SIZE, PagedList } from "./pages.js";
import { badge } from "./rows.js";
import { count, many, time } from "./words.js";

const MAX_CHARS = 1_000_000; // as the API has it
const POSTED = {
  created: "Added.",
  updated: "The new version is in use.",
  unchanged: "That is just what was there already.",
};

export function documents(page, root) {
  const list = new PagedList({
    label: "Documents",
    noun: ["document", "documents"],
    signal: page.signal,
    load: (after, signal) =>
      page.api.get("v1/memory/documents", { ...page.session.query, limit: PAGE_SIZE, after }, signal),
    row: (document) => row(document, { look: () => look(page, document), erase: () => erase(document) }),
    empty: () =>
      nothing(
        "No documents",
        "Add a handbook or notes as Markdown or text: passages that answer a message are quoted with their headings.",
        h("button", { type: "button", class: "primary", on: { click: () => add() } }, "Add a document"),
      ),
  });
  const add = async () => {
    const posted = await upload(page);
    if (!posted) return;
    const hidden = posted.redacted.length ? ` Secrets were removed from ${many(posted.redacted.length, "section")}.` : "";
    page.say(`${POSTED[posted.change] ?? POSTED.created} ${many(posted.passages, "passage")}.${hidden}`);
    list.first();
  };
  const erase = async (document) => {
    if (!(await sure(document))) return;
    try {
      await page.api.delete(`v1/memory/documents/${segment(document.id)}`, page.session.query);
      page.say("Deleted.");
      await list.reload();
    } catch (error) {
      page.fail(error);
    }
  };
  root.append(
    h(
      "header",
      { class: "view" },
      h("h1", {}, "Documents"),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "button", class: "primary", on: { click: add } }, icon("add"), "Add"),
      ),
    ),
    list.element,
  );
  list.first();
  return { keys: { n: add }, turn: (step) => list.turn(step) };
}

function row(document, { look, erase }) {
  return h(
    "li",
    { class: "row line", tabIndex: -1, "data-row": document.id },
    foreign("strong", document.name, { class: "name" }),
    h(
      "div",
      { class: "meta" },
      document.status !== "ready" && badge(document.status, "job-waiting"),
      document.project_id && badge(document.project_id, "project"),
      h("span", {}, many(document.sections, "section")),
      h("span", {}, many(document.passages, "passage")),
      h("span", {}, `${count(document.characters)} characters`),
      document.version > 1 && h("span", {}, `version ${count(document.version)}`),
      h("span", { class: "when" }, time(document.updated_at)),
    ),
    h(
      "div",
      { class: "actions" },
      h("button", { type: "button", on: { click: look } }, "Look"),
      h("button", { type: "button", class: "danger", on: { click: erase } }, "Delete"),
    ),
  );
}

/** Show the document's text. */
async function look(page, document) {
  try {
    const query = { ...page.session.query, include: "content" };
    const { content } = await page.api.get(`v1/memory/documents/${segment(document.id)}`, query, page.signal);
    await dialog(document.name, () => h("div", {}, foreign("pre", content, { class: "block", tabIndex: 0 })), { wide: true });
  } catch (error) {
    page.fail(error);
  }
}

function sure(document) {
  return dialog("Delete this document?", (close) =>
    h(
      "div",
      {},
      foreign("strong", document.name),
      h("p", { class: "final" }, "It is erased, with the answers that may repeat it."),
      h(
        "footer",
        {},
        h("button", { type: "button", autofocus: true, on: { click: () => close(false) } }, "Cancel"),
        h("button", { type: "button", class: "danger", on: { click: () => close(true) } }, "Delete"),
      ),
    ),
  );
}

/** Let a person choose a file, or write; resolves to what the API answers, or to null. */
function upload(page) {
  return dialog("Add a document", (close) => uploading(page, close), { wide: true });
}

function uploading(page, close) {
  const file = h("input", { type: "file", accept: ".md,.markdown,.txt,text/markdown,text/plain" });
  const name = h("input", { autocomplete: "off", maxlength: 200 });
  const content = h("textarea", { rows: 8, maxlength: MAX_CHARS, dir: "auto", spellcheck: "false" });
  const format = choice([["markdown", "Markdown"], ["text", "Plain text"]], "markdown");
  const project = h("input", { list: "projects", autocomplete: "off", maxlength: 256 });
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    name.value ||= chosen.name;
    format.value = /\.txt$/i.test(chosen.name) ? "text" : "markdown";
    content.value = (await chosen.text()).slice(0, MAX_CHARS + 1);
  });
  const problems = complaints(() => element);
  const send = () =>
    working(element, problems, async () => {
      const project_id = project.value.trim();
      const body = { name: name.value, content: content.value, format: format.value, ...page.session.query };
      close(await page.api.post("v1/memory/documents", { body: project_id ? { ...body, project_id } : body }));
    });
  const element = form(
    {},
    send,
    field("File", file, { hint: "Markdown or text; or write it below." }),
    field("Name", name, { param: "name", hint: "A document of this name is replaced by its next version." }),
    field("Text", content, { param: "content" }),
    h(
      "div",
      { class: "columns" },
      field("Format", format, { param: "format", hint: "Markdown is split at its headings." }),
      field("Project", project, { param: "project_id", hint: "Empty: for all." }),
    ),
    problems.place,
    h(
      "footer",
      {},
      h("button", { type: "button", on: { click: () => close(null) } }, "Cancel"),
      h("button", { type: "submit", class: "primary" }, "Add"),
    ),
  );
  return element;
}
