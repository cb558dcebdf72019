// Proofs of what was forgotten: when, by which credential, how much; never its content.

import { foreign, h } from "./dom.js";
import { nothing, PAGE_SIZE, PagedList } from "./pages.js";
import { badge, typeBadge } from "./rows.js";
import { forgottenWords, time } from "./words.js";

// The labels of credentials that say little by themselves.
const BY = {
  open: "in open mode",
  header: "by the one signed in",
  jwt: "by a token",
  retention: "by retention, as it had expired",
};

export function receipts(page, root) {
  const everyone = h("input", { type: "checkbox" });
  const whose = () => (everyone.checked ? {} : page.session.query);
  const list = new PagedList({
    label: "Receipts",
    noun: ["receipt", "receipts"],
    signal: page.signal,
    load: (after, signal) =>
      page.api.get("v1/memory/receipts", { ...whose(), limit: PAGE_SIZE, after }, signal),
    row: (receipt) => row(receipt, everyone.checked),
    empty: () =>
      nothing("No receipts", "Whenever something is forgotten, a receipt says when, by whom, and how much."),
  });
  everyone.addEventListener("change", () => list.first());
  const all = page.session.may("admin") && page.session.mayChooseUser;
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Receipts")),
    all ? h("div", { class: "filters" }, h("label", { class: "check" }, everyone, "All users")) : "",
    list.element,
  );
  list.first();
  return { turn: (step) => list.turn(step) };
}

function row(receipt, showUser) {
  const counts = forgottenWords(receipt.counts ?? {});
  return h(
    "li",
    { class: "row line", tabIndex: -1, "data-row": receipt.id },
    h("div", { class: "name" }, counts.length ? counts.join(", ") : "nothing was left"),
    h(
      "div",
      { class: "meta" },
      showUser && foreign("strong", receipt.user_id),
      receipt.memory_id
        ? h("span", {}, receipt.memory_id.startsWith("doc_") ? "one document" : "one memory")
        : !receipt.project_id && !receipt.type && h("span", {}, "everything"),
      receipt.project_id && badge(receipt.project_id, "project"),
      receipt.type && typeBadge(receipt.type),
      h("span", {}, BY[receipt.by] ?? ["by ", foreign("span", receipt.by)]),
      foreign("code", receipt.id),
      h("span", { class: "when" }, time(receipt.created_at)),
    ),
  );
}
