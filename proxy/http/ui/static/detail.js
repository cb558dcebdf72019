// One memory next to the list: its text, origin and history.

import { act, buttons } from "./actions.js";
import { segment } from "./api.js";
import { foreign, h, visible } from "./dom.js";
import { edit } from "./editor.js";
import { forgetOne, toldForgotten } from "./forget.js";
import { bar, icon } from "./icons.js";
import { broken } from "./pages.js";
import { badge, inactive, typeBadge } from "./rows.js";
import { count, how, many, plain, time } from "./words.js";

const MAX_EVENTS = 100;
const MAX_EVIDENCE = 20;

export class Detail {
  #page;
  #base; // the address of the list that it belongs to
  #changed;
  #asking = null;
  #memory = null;
  #opener = null;

  /** `changed(id)`: called when the memory was edited, archived or forgotten. */
  constructor(page, base, changed) {
    this.#page = page;
    this.#base = base;
    this.#changed = changed;
    this.element = h("aside", { class: "detail", "aria-label": "Memory" });
    page.signal.addEventListener("abort", () => this.#asking?.abort());
    this.#idle();
  }

  get id() {
    return this.element.dataset.id ?? null;
  }

  /** Show the memory with this id, or none. */
  async open(id) {
    this.#asking?.abort();
    if (id === null) return this.#shut();
    if (!this.element.classList.contains("open")) this.#opener = document.activeElement;
    const asking = new AbortController();
    this.#asking = asking;
    this.element.classList.add("open");
    this.element.dataset.id = id;
    this.element.setAttribute("aria-busy", "true");
    const path = `v1/memory/${segment(id)}`;
    const { api, session } = this.#page;
    try {
      const [memory, history] = await Promise.all([
        api.get(path, session.query, asking.signal),
        api.get(`${path}/history`, session.query, asking.signal),
      ]);
      this.#show(memory, history.data);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.#memory = null;
      this.element.replaceChildren(
        this.#bar(),
        broken(error, () => this.open(id)),
      );
    }
    this.element.removeAttribute("aria-busy");
    if (matchMedia("(max-width: 1099px)").matches) this.element.querySelector(".close").focus();
  }

  #shut() {
    if (!this.element.classList.contains("open")) return;
    const id = this.id;
    this.element.classList.remove("open");
    delete this.element.dataset.id;
    this.#memory = null;
    this.#idle();
    const row = [...document.querySelectorAll("[data-row]")].find((one) => one.dataset.row === id);
    (row ?? this.#opener)?.focus();
  }

  #idle() {
    this.element.replaceChildren(
      h("p", { class: "idle" }, "Open a memory to see where it comes from, and its history."),
    );
  }

  #bar(...actions) {
    const leave = () => this.#page.go(this.#base);
    const close = h(
      "button",
      {
        type: "button",
        class: "quiet square close",
        "aria-label": "Close the memory",
        title: "Close (Esc)",
        on: { click: leave },
      },
      icon("back"),
    );
    return h("div", { class: "bar" }, close, h("div", { class: "actions" }, actions));
  }

  #show(memory, events) {
    this.#memory = memory;
    const state = inactive(memory);
    this.element.replaceChildren(
      this.#bar(
        h("button", { type: "button", on: { click: () => this.edit() } }, "Edit"),
        buttons(this.#page, memory, (verb) => this.#acted(memory, verb)),
        h("button", { type: "button", class: "danger", on: { click: () => this.forget() } }, "Forget"),
      ),
      h(
        "div",
        { class: "meta" },
        typeBadge(memory.type),
        state && badge(state, "state-mark"),
        memory.pinned && badge("pinned", "did-created"),
        memory.core && !memory.pinned && badge("core", "did-created"),
        (memory.tags ?? []).map((tag) => badge(tag, "tag")),
      ),
      foreign("p", memory.content, { class: "whole" }),
      this.#facts(memory),
      ...this.#sources(memory.sources ?? []),
      ...provenance(memory),
      ...timeline(events),
    );
    this.element.scrollTop = 0;
  }

  #facts(memory) {
    const rows = [
      ["Project", memory.project_id ? foreign("span", memory.project_id) : "none"],
      ["Learned", [origin({ by: memory.source }), ", ", time(memory.created_at)]],
      ["Changed", time(memory.updated_at)],
      ["True since", time(memory.valid_from)],
      memory.valid_to && ["True until", time(memory.valid_to)],
      ["Expires", memory.expires_at ? time(memory.expires_at) : "never"],
      [
        "Recalled",
        memory.access_count
          ? [`${count(memory.access_count)}×, last `, time(memory.last_accessed)]
          : "not yet",
      ],
      memory.uses !== undefined && [
        "Used",
        memory.uses ? [`in ${many(memory.uses, "answer")}, last `, time(memory.last_used_at)] : "in no answer yet",
      ],
      memory.fades_at !== undefined && ["Fades", memory.fades_at ? time(memory.fades_at) : "never"],
      ["Importance", measure(memory.importance)],
      ["Confidence", measure(memory.confidence)],
      memory.superseded_by && ["Replaced by", this.#link(memory.superseded_by)],
      ["User", foreign("span", memory.user_id ?? "")],
      ["Id", foreign("code", memory.id)],
    ];
    return h(
      "dl",
      {},
      rows.filter(Boolean).map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
    );
  }

  /** Return the memories that this one was made from; their texts come after. */
  #sources(ids) {
    if (!ids.length) return [];
    const { api, session, signal } = this.#page;
    const item = (id) => {
      const link = this.#link(id);
      api.get(`v1/memory/${segment(id)}`, session.query, signal).then(
        ({ content }) => link.replaceChildren(visible(content)),
        () => {}, // the id is shown instead
      );
      return h("li", {}, link);
    };
    return [h("h3", {}, "Made from"), h("ul", { class: "sources" }, ids.slice(0, MAX_EVIDENCE).map(item))];
  }

  #link(id) {
    return foreign("a", id, { href: `#/${this.#base}/${encodeURIComponent(id)}` });
  }

  async edit() {
    if (!this.#memory) return;
    const saved = await edit(this.#page, this.#memory);
    if (saved) await this.#after(saved, "Saved.");
  }

  async archive() {
    const memory = this.#memory;
    if (!memory || memory.superseded_by) return;
    const verb = memory.archived ? "restore" : "archive";
    if (await act(this.#page, memory, verb)) await this.#acted(memory, verb);
  }

  async pin() {
    const memory = this.#memory;
    if (!memory || inactive(memory)) return;
    const verb = memory.pinned ? "unpin" : "pin";
    if (await act(this.#page, memory, verb)) await this.#acted(memory, verb);
  }

  async #acted(memory, verb) {
    this.#changed(memory.id);
    if (verb === "undo") this.#page.go(this.#base);
    else await this.open(memory.id);
  }

  async forget() {
    const memory = this.#memory;
    if (!memory) return;
    const answer = await forgetOne(this.#page, memory);
    if (answer === "archive") return this.archive();
    if (!answer) return;
    toldForgotten(this.#page, answer);
    this.#page.go(this.#base);
    this.#changed(memory.id);
  }

  async #after(saved, words) {
    this.#page.say(words);
    this.#changed(saved.id);
    await this.open(saved.id);
  }
}

/** Return where a change came from, in words where there are any. */
function origin(event) {
  return how(event) ?? ["by ", foreign("code", event.by)];
}

function measure(value) {
  return [bar(value), ` ${Number(value).toFixed(2)}`];
}

function provenance(memory) {
  const evidence = memory.evidence ?? [];
  if (!evidence.length) return [];
  const rest = evidence.length - MAX_EVIDENCE;
  const item = (one) =>
    h(
      "li",
      {},
      one.span ? foreign("blockquote", one.span) : h("p", { class: "hint" }, "Its words are no longer stored."),
      h("p", { class: "hint" }, "Session ", foreign("code", one.session_id)),
    );
  return [
    h("h3", {}, "Where it comes from"),
    h("ul", { class: "evidence" }, evidence.slice(0, MAX_EVIDENCE).map(item)),
    rest > 0 && h("p", { class: "hint" }, `and ${count(rest)} more`),
  ].filter(Boolean);
}

function timeline(events) {
  const latest = events.slice(-MAX_EVENTS).reverse();
  const item = (event) =>
    h(
      "li",
      {},
      h("p", {}, h("strong", {}, plain(event.action)), " ", origin(event), ", ", time(event.at)),
      event.content && foreign("p", event.content, { class: "past" }),
      event.became && foreign("p", `→ ${event.became}`, { class: "past" }),
    );
  return [h("h3", {}, "History"), h("ol", { class: "timeline" }, latest.map(item))];
}
