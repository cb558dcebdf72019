// Candidates that looked like planted instructions or the like: their owner judges.

import { segment } from "./api.js";
import { dialog } from "./dialogs.js";
import { foreign, h } from "./dom.js";
import { nothing, PAGE_SIZE, PagedList } from "./pages.js";
import { badge, typeBadge } from "./rows.js";
import { plain, time } from "./words.js";

// The reasons that the write gate has; others are shown as they are.
const REASONS = {
  doubtful: "It may not follow from what the user said.",
  quoted: "The user quoted it, and may not mean it.",
  tool_output: "It comes from a tool’s output, not from the user.",
  quoted_instruction: "It comes from a quoted or pasted text, and reads like an instruction.",
  assistant_instruction: "The assistant said it, not the user.",
  unsourced_instruction: "It reads like an instruction of unknown origin.",
  planted_instruction: "It reads like a planted instruction.",
};
const RELEASED = {
  confirmed: "Released. That was known already, and is confirmed now.",
  superseded: "Released. It replaces an older memory.",
};

export function quarantine(page, root) {
  const list = new PagedList({
    label: "Quarantine",
    noun: ["candidate", "candidates"],
    signal: page.signal,
    load: (after, signal) =>
      page.api.get("v1/memory/quarantine", { ...page.session.query, limit: PAGE_SIZE, after }, signal).then((answer) => {
        page.waiting("quarantine", answer.data.length > 0 && "something to review");
        return answer;
      }),
    row: (held) => row(held, decide),
    empty: () =>
      nothing(
        "Nothing to review",
        "Doubtful statements, such as instructions planted in a document, would wait here for you.",
      ),
  });
  const decide = async (held, release) => {
    const path = `v1/memory/quarantine/${segment(held.id)}`;
    if (!release && !(await sure(held))) return;
    try {
      const query = page.session.query;
      const done = release
        ? await page.api.post(`${path}/release`, { query })
        : await page.api.delete(path, query);
      page.say(release ? (RELEASED[done.change] ?? "Released: it is a memory now.") : "Discarded.");
      await list.reload();
    } catch (error) {
      page.fail(error);
    }
  };
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Quarantine")),
    h(
      "p",
      { class: "lead" },
      "Statements that the proxy did not trust. None of them is used until you release it.",
    ),
    list.element,
  );
  list.first();
  const press = (name) => () =>
    document.activeElement?.closest("[data-row]")?.querySelector(`[data-does=${name}]`)?.click();
  return { keys: { r: press("release"), Delete: press("discard") }, turn: (step) => list.turn(step) };
}

function sure(held) {
  return dialog("Discard this candidate?", (close) =>
    h(
      "div",
      {},
      foreign("blockquote", held.content),
      h("p", { class: "final" }, "It is erased, and cannot be brought back."),
      h(
        "footer",
        {},
        h("button", { type: "button", autofocus: true, on: { click: () => close(false) } }, "Cancel"),
        h("button", { type: "button", class: "danger", on: { click: () => close(true) } }, "Discard"),
      ),
    ),
  );
}

function row(held, decide) {
  return h(
    "li",
    { class: "row card", tabIndex: -1, "data-row": held.id },
    foreign("p", held.content, { class: "whole" }),
    h(
      "div",
      { class: "meta" },
      badge(plain(held.reason), "reason"),
      typeBadge(held.type),
      held.project_id && badge(held.project_id, "project"),
      (held.tags ?? []).slice(0, 5).map((tag) => badge(tag, "tag")),
      h("span", {}, `${plain(held.source)}, confidence ${Number(held.confidence ?? 0).toFixed(2)}`),
      h("span", { class: "when" }, time(held.created_at)),
    ),
    REASONS[held.reason] ? h("p", { class: "due reason-words" }, REASONS[held.reason]) : "",
    ...evidence(held.evidence),
    h(
      "div",
      { class: "actions" },
      h(
        "button",
        { type: "button", "data-does": "release", on: { click: () => decide(held, true) } },
        "Release as memory",
      ),
      h(
        "button",
        { type: "button", class: "danger", "data-does": "discard", on: { click: () => decide(held, false) } },
        "Discard",
      ),
    ),
  );
}

/** Return where the candidate came from: the words, and the session. */
function evidence(given) {
  const all = (Array.isArray(given) ? given : [given]).filter(Boolean);
  return all
    .map((one) => {
      const span = typeof one === "string" ? one : one.span;
      const session = typeof one === "string" ? null : one.session_id;
      if (!span && !session) return null;
      return h(
        "div",
        { class: "origin" },
        span
          ? [h("p", { class: "hint" }, "The words it was taken from:"), foreign("blockquote", span)]
          : null,
        session ? h("p", { class: "hint" }, "From session ", foreign("code", session)) : null,
      );
    })
    .filter(Boolean);
}
