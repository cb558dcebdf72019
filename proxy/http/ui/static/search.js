// What the model would be shown for a message, with scores and reasons.

import { Detail } from "./detail.js";
import { choice, complaints, field, form, working } from "./dialogs.js";
import { foreign, h } from "./dom.js";
import { bar } from "./icons.js";
import { nothing } from "./pages.js";
import { markOpen, memoryRow, TYPES } from "./rows.js";
import { because, many } from "./words.js";

export function search(page, root) {
  const status = h("p", { class: "status", role: "status" }, "\u00a0");
  const list = h("ol", { class: "rows", "aria-label": "Matches" });
  const place = h("div", { class: "place" }, hint());
  const problems = complaints(() => asked);
  const fields = makeFields(page);
  const ask = () =>
    working(asked, problems, async () => {
      if (!fields.query.value.trim()) return fields.query.focus();
      list.setAttribute("aria-busy", "true");
      try {
        const answer = await page.api.post("v1/memory/search", {
          body: question(page, fields),
          signal: page.signal,
        });
        page.state.search = { query: fields.query.value, answer };
        show(answer);
      } finally {
        list.removeAttribute("aria-busy");
      }
    });
  const show = ({ data: matches, would_inject, reason }) => {
    const unshown = would_inject === false ? `. A chat would be shown none of them: ${reason}` : "";
    status.textContent = matches.length
      ? `${many(matches.length, "memory", "memories")}, the best first${unshown}`
      : "\u00a0";
    list.replaceChildren(...matches.map(matchRow));
    place.replaceChildren(
      ...(matches.length
        ? []
        : [nothing("Nothing would be shown", "No memory fits this message well enough.")]),
    );
    markOpen(list, detail.id);
  };
  const asked = form({ class: "ask", role: "search" }, ask, layout(fields), problems.place);
  const detail = new Detail(page, "search", () => ask());
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Search as the model would")),
    h(
      "div",
      { class: "split" },
      h("div", { class: "list-side" }, asked, status, list, place),
      detail.element,
    ),
  );
  if (page.state.search) {
    fields.query.value = page.state.search.query;
    show(page.state.search.answer);
  }
  const route = async (id) => {
    await detail.open(id);
    markOpen(list, detail.id);
  };
  const keys = { e: () => detail.edit(), Delete: () => detail.forget(), a: () => detail.archive(), p: () => detail.pin() };
  return { route, keys, find: fields.query, closes: "search" };
}

function hint() {
  return nothing(
    "Ask as a user would",
    "The search that runs before requests to the model: meaning and words together, ranked, with the reason for each. Where the model would be shown none of them all the same, it says why.",
  );
}

function makeFields(page) {
  return {
    query: h("input", {
      type: "search",
      placeholder: "A message to the model, e.g. “Where do I fly next month?”",
      maxlength: 20_000,
      autocomplete: "off",
      "aria-keyshortcuts": "/",
    }),
    type: choice([["", "All types"], ...TYPES], ""),
    project: h("input", {
      type: "search",
      list: "projects",
      autocomplete: "off",
      value: page.state.filter?.project ?? "",
    }),
    limit: h("input", { type: "number", min: 1, max: 100, placeholder: "the proxy’s" }),
    threshold: h("input", { type: "number", min: 0, max: 1, step: 0.05, placeholder: "the proxy’s" }),
  };
}

function layout(fields) {
  return [
    h(
      "div",
      { class: "one-line" },
      field("Message", fields.query, { param: "query" }),
      h("button", { type: "submit", class: "primary" }, "Search"),
    ),
    h(
      "details",
      { open: fields.project.value !== "" }, // what the list was filtered by narrows this, too
      h("summary", {}, "Narrow it down"),
      h(
        "div",
        { class: "columns" },
        field("Type", fields.type, { param: "memory_types" }),
        field("Project", fields.project, { param: "project_id" }),
        field("At most", fields.limit, { param: "limit" }),
        field("Least similarity", fields.threshold, { param: "similarity_threshold" }),
      ),
    ),
  ];
}

function question(page, fields) {
  const body = { query: fields.query.value, ...page.session.query };
  if (fields.limit.value) body.limit = Number(fields.limit.value);
  if (fields.type.value) body.memory_types = [fields.type.value];
  if (fields.project.value.trim()) body.project_id = fields.project.value.trim();
  if (fields.threshold.value) body.similarity_threshold = Number(fields.threshold.value);
  return body;
}

function matchRow(match) {
  const score = Number(match.score) || 0;
  return memoryRow(
    match.memory,
    `#/search/${encodeURIComponent(match.memory.id)}`,
    h(
      "div",
      { class: "score" },
      bar(score, "Score"),
      h("span", { class: "number", "aria-hidden": "true" }, score.toFixed(2)),
      foreign("span", because(match.why), { class: "why" }),
    ),
  );
}
