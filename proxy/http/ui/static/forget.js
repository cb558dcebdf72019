// Forgetting: first what it would take with it, then the question, then what went.

import { segment } from "./api.js";
import { choice, complaints, dialog, field, form, working } from "./dialogs.js";
import { foreign, h } from "./dom.js";
import { shortened, TYPES } from "./rows.js";
import { forgottenWords } from "./words.js";

const FINAL = "This cannot be undone. What is forgotten is erased, not hidden.";

/** Ask, and forget one memory; resolves to the answer of the API, or null where nothing was done. */
export function forgetOne(page, memory) {
  const path = `v1/memory/${segment(memory.id)}`;
  return dialog("Forget this memory?", (close, signal) => {
    const quote = foreign("blockquote", shortened(memory.content, 300));
    const archive =
      !memory.archived &&
      h("button", { type: "button", on: { click: () => close("archive") } }, "Archive instead");
    return question(page, { path, query: () => page.session.query, close, signal, extra: archive }, quote);
  });
}

/** Ask for a scope, and forget what is in it. */
export function forgetMany(page) {
  return dialog("Forget memories", (close, signal) => {
    const project = h("input", { value: page.state.filter.project, list: "projects", autocomplete: "off" });
    const type = choice([["", "All types"], ...TYPES], page.state.filter.type);
    const query = () => ({ ...page.session.query, project_id: project.value.trim(), type: type.value });
    const asked = question(page, { path: "v1/memory", query, close, signal, confirm: true }, [
      h("p", {}, "Forget everything of ", whose(page), ", or only a project or a type of it."),
      h(
        "div",
        { class: "columns" },
        field("Project", project, {
          param: "project_id",
          hint: "Empty: all projects and what belongs to none.",
        }),
        field("Type", type, { param: "type" }),
      ),
    ]);
    for (const control of [project, type]) control.addEventListener("change", () => asked.recount());
    return asked;
  });
}

function whose(page) {
  return page.session.user ? foreign("strong", page.session.user) : "yours";
}

/** Return the form that counts, asks and forgets. */
function question(page, { path, query, close, signal, confirm = false, extra = null }, intro) {
  const problems = complaints(() => element);
  const counted = h("div", { class: "counted", role: "status" });
  const typed = h("input", { autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const button = h("button", { type: "submit", class: "danger", disabled: true }, "Forget");
  let counts = null;
  const ready = () => {
    button.disabled =
      counts === null || !counts.length || (confirm && typed.value.trim().toLowerCase() !== "forget");
  };
  const forget = async () => {
    const answer = await page.api.delete(path, query());
    close(answer);
  };
  const element = form(
    {},
    () => !button.disabled && working(element, problems, forget),
    intro,
    counted,
    confirm && field("Type “forget” to confirm", typed),
    problems.place,
    h(
      "footer",
      {},
      extra,
      h("button", { type: "button", autofocus: true, on: { click: () => close(null) } }, "Cancel"),
      button,
    ),
  );
  typed.addEventListener("input", ready);
  element.recount = async () => {
    counts = null;
    ready();
    counted.replaceChildren(h("p", { class: "hint" }, "Counting what would be erased …"));
    try {
      counts = forgottenWords(await page.api.delete(path, { ...query(), dry_run: "true" }, signal));
      problems.clear();
      counted.replaceChildren(...toldCounts(counts));
    } catch (error) {
      if (error.name === "AbortError") return;
      counted.replaceChildren();
      problems.show(error);
    }
    ready();
  };
  element.recount();
  return element;
}

function toldCounts(counts) {
  if (!counts.length) return [h("p", {}, "There is nothing to forget here.")];
  return [
    h("p", {}, "This erases:"),
    h(
      "ul",
      {},
      counts.map((words) => h("li", {}, words)),
    ),
    h("p", { class: "final" }, FINAL),
  ];
}

/** Say what went, and where the proof of it is. */
export function toldForgotten(page, answer) {
  const words = forgottenWords(answer);
  const proof = answer.receipt ? ` Receipt ${answer.receipt}.` : "";
  page.say(`Forgotten: ${words.length ? words.join(", ") : "nothing was left"}.${proof}`);
}
