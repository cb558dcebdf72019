// Lists that are read a page at a time: however long they are, no more than a page is on the screen.

import { h } from "./dom.js";
import { count, failure, many } from "./words.js";

export const PAGE_SIZE = 40;

/**
 * Return a list over cursors. `load(after, signal)` asks for a page of the API, `row(item)` makes its <li>,
 * `empty()` what to show where there is nothing, `noun` is what the items are: [one, more].
 */
export class PagedList {
  #make;
  #cursors = [null]; // where each page seen so far begins
  #at = 0;
  #asking = null;
  #shown = null;

  constructor(make) {
    this.#make = make;
    this.status = h("p", { class: "status", role: "status" }, "\u00a0");
    this.list = h("ol", { class: "rows", "aria-label": make.label, hidden: true });
    this.place = h("div", { class: "place" });
    this.newer = this.#turner("Previous", -1);
    this.older = this.#turner("Next", +1);
    this.pager = h("nav", { class: "pager", "aria-label": "Pages", hidden: true }, this.newer, this.older);
    this.element = h("section", { class: "paged" }, this.status, this.list, this.place, this.pager);
    make.signal.addEventListener("abort", () => this.#asking?.abort());
  }

  #turner(words, step) {
    const click = () => this.turn(step);
    return h("button", { type: "button", disabled: true, on: { click } }, words);
  }

  /** Begin at the first page. */
  first() {
    this.#cursors = [null];
    this.#at = 0;
    return this.reload();
  }

  /** Show the page before or after; returns whether there is one. */
  async turn(step) {
    const next = this.#at + step;
    if (next < 0 || next >= this.#cursors.length) return false;
    this.#at = next;
    if (await this.reload()) this.list.closest("main")?.scrollTo({ top: 0 });
    return true;
  }

  /** Ask for the page again; an answer that a later question overtook is dropped. */
  async reload() {
    this.#asking?.abort();
    const asking = new AbortController();
    this.#asking = asking;
    this.list.setAttribute("aria-busy", "true");
    if (!this.#shown) this.#skeleton();
    try {
      const answer = await this.#make.load(this.#cursors[this.#at], asking.signal);
      if (!answer.data.length && this.#at > 0) return await this.turn(-1); // its last row went
      this.#show(answer);
      return true;
    } catch (error) {
      if (error.name !== "AbortError") this.#fail(error);
      return false;
    }
  }

  #show(answer) {
    const { data } = answer;
    this.#shown = data;
    const focused = this.#focused();
    this.list.replaceChildren(...data.map((item) => this.#make.row(item)));
    this.list.removeAttribute("aria-busy");
    this.list.hidden = data.length === 0;
    this.place.replaceChildren(...(data.length ? [] : [this.#make.empty()]));
    this.#cursors.length = this.#at + 1;
    if (answer.has_more && data.length) this.#cursors.push(answer.last_id ?? data.at(-1).id);
    this.newer.disabled = this.#at === 0;
    this.older.disabled = !answer.has_more;
    this.pager.hidden = this.#at === 0 && !answer.has_more;
    this.status.textContent = this.#summary(data.length, answer.total);
    this.#refocus(focused);
  }

  /** Return which row has the focus, by id and place. */
  #focused() {
    const rows = this.#rows();
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    return at === -1 ? null : { at, id: rows[at].dataset.row };
  }

  /** Give the focus back to the row that had it, or to the one that took its place. */
  #refocus(focused) {
    if (!focused) return;
    const rows = this.#rows();
    (rows.find((row) => row.dataset.row === focused.id) ?? rows[focused.at] ?? rows.at(-1))?.focus();
  }

  #rows() {
    return [...this.list.querySelectorAll("[data-row]")];
  }

  #summary(shown, total) {
    const [one, more] = this.#make.noun;
    if (!shown) return `No ${more}`;
    const from = this.#at * PAGE_SIZE + 1;
    const range = shown === 1 ? count(from) : `${count(from)}–${count(from + shown - 1)}`;
    if (typeof total !== "number")
      return this.#at === 0 && this.pager.hidden ? many(shown, one, more) : `${range} of the ${more}`;
    return total === shown ? many(total, one, more) : `${range} of ${many(total, one, more)}`;
  }

  #skeleton() {
    const bars = Array.from({ length: 6 }, () => h("div", { class: "skeleton" }));
    this.place.replaceChildren(h("div", { "aria-hidden": "true" }, bars));
    this.status.textContent = "Loading …";
  }

  #fail(error) {
    this.#shown = null;
    this.list.replaceChildren();
    this.list.removeAttribute("aria-busy");
    this.list.hidden = true;
    this.pager.hidden = true;
    this.status.textContent = "\u00a0";
    this.place.replaceChildren(broken(error, () => this.reload()));
  }
}

/** Return what is shown in place of something that could not be had. */
export function broken(error, retry) {
  const { title, text } = failure(error);
  return h(
    "div",
    { class: "state bad", role: "alert" },
    h("h2", {}, title),
    h("p", {}, text),
    h("button", { type: "button", on: { click: retry } }, "Try again"),
  );
}

/** Return the button that leads to where memories begin. */
export function toTry(page) {
  return h("button", { type: "button", class: "primary", on: { click: () => page.go("try") } }, "Try it");
}

/** Return what is shown where there is nothing, and what to do about it. */
export function nothing(title, text, ...actions) {
  return h(
    "div",
    { class: "state" },
    h("h2", {}, title),
    h("p", {}, text),
    actions.length ? h("p", { class: "actions" }, actions) : null,
  );
}
