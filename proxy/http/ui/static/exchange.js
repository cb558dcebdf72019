// One exchange of a chat, and next to it what the model was given for it: the memories and why, what was left
// out and why, the block as it was sent, and what was learned.

import { foreign, h, visible } from "./dom.js";
import { bar } from "./icons.js";
import { badge, shortened, typeBadge } from "./rows.js";
import { because, failure, how, LEFT_OUT, many, plain, REASONS } from "./words.js";

const LATER =
  "Your words are stored. They are read for facts after five messages or a pause; at once if you ask to remember something; or now:";
const UNSURE = "The proxy did not confirm in time that your words are stored. They may be:";
const TOO = "At least one memory helps for sure (.50 or more); then those that may help a little are given, too.";
const WHOLE_CHARS = 300; // of a memory

export class Exchange {
  #said;
  #explanation = null;
  #sent = null; // what the answer's headers say
  #learned = new Map();

  constructor(said) {
    this.#said = said.trim().split(/\s+/).join(" ");
    this.answered = foreign("p", "", { class: "answered", "aria-live": "polite", "aria-busy": "true" });
    this.given = h("section", { class: "given", "aria-busy": "true" }, h("p", { class: "hint" }, "Looking …"));
    this.learning = h("section", { class: "learned", role: "status", hidden: true });
    this.action = h("p", { class: "later" });
    this.news = h("ul", { class: "weighed" });
    this.forgotten = h("p", {});
    this.others = h("div", {});
    this.learning.append(h("h3", {}, "Learned from this"), this.forgotten, this.news, this.action, this.others);
    this.element = h(
      "li",
      { class: "exchange" },
      h("div", { class: "talk" }, foreign("p", said, { class: "said" }), this.answered),
      h("aside", { class: "why-panel", "aria-label": "What the model was given" }, this.given, this.learning),
    );
  }

  /** Show what the read path says. `explanation`: null if it could not be had. */
  explain(explanation) {
    this.#explanation = explanation;
    this.#show();
  }

  /** Take in the answer's headers: what was really sent. */
  sent(headers, isToStore) {
    const of = (name) => headers.get(`X-Memory-${name}`);
    this.#sent = { status: of("Status"), reason: of("Reason"), count: Number(of("Count")), tokens: Number(of("Tokens")) };
    this.#sent.isPromised = of("Store") === "queued";
    this.#sent.isToStore = isToStore && this.#sent.status !== "off";
    const forgotten = of("Forgotten")?.split(",").length ?? 0;
    this.forgotten.textContent = forgotten ? `Forgotten, as you asked: ${many(forgotten, "memory", "memories")}.` : "";
    this.learning.hidden = false;
    if (!this.isStored) this.action.replaceChildren("Nothing of this exchange is stored.");
    this.#show();
  }

  /** False if nothing is stored. What the proxy did not promise in time may be stored all the same. */
  get isStored() {
    return Boolean(this.#sent?.isPromised || this.#sent?.isToStore);
  }

  answer(text) {
    this.answered.textContent = visible(text);
    this.answered.removeAttribute("aria-busy");
  }

  /** Say that nothing has come yet, and what can be done. */
  wait() {
    if (this.answered.textContent) return;
    this.answered.append(h("span", { class: "hint" }, "The upstream has not answered yet. “Stop” ends the wait."));
  }

  fail(error) {
    const { title, text } = error.name === "AbortError" ? { title: "Stopped", text: "" } : failure(error);
    const words = error.status === 401 ? "The upstream wants a key. Set one under “Model and options”." : error.message;
    const why = error.status ? words : text;
    this.answered.replaceChildren(h("strong", {}, title), " ", foreign("span", why));
    this.answered.classList.add("bad");
    this.answered.removeAttribute("aria-busy");
    this.given.removeAttribute("aria-busy");
  }

  // ------------------------------------------------------------ learned
  offerReading(read) {
    const button = h("button", { type: "button", on: { click: read } }, "Read it now");
    this.action.replaceChildren(this.#sent.isPromised ? LATER : UNSURE, " ", button);
  }

  reading() {
    this.action.replaceChildren("Being read for facts …");
  }

  read() {
    this.action.replaceChildren(this.news.childElementCount ? "All is read." : "All is read: there was nothing to learn in it.");
  }

  /** Show changes of memories and held candidates. What replaces an older memory is one change, not two. */
  learn(events) {
    for (const event of events) this.#learned.set(event.id, event);
    const all = [...this.#learned.values()];
    const replacing = new Set(all.filter(({ action }) => action === "superseded").map(({ by }) => by));
    const shown = all.filter(({ action, memory_id }) => action !== "created" || !replacing.has(memory_id));
    const isNews = ({ action }) => action !== "archived" && action !== "restored";
    const others = shown.filter((one) => !isNews(one));
    this.news.replaceChildren(...shown.filter(isNews).map((one) => (isHeld(one) ? candidate(one) : change(one))));
    this.others.replaceChildren(
      ...(others.length ? [folded(`Also changed: ${many(others.length, "memory", "memories")}`, h("ul", { class: "weighed" }, others.map(change)))] : []),
    );
  }

  // ------------------------------------------------------------ given
  #show() {
    this.given.removeAttribute("aria-busy");
    this.given.replaceChildren(...given(this.#explanation, this.#sent, this.#said));
  }
}

function given(explanation, sent, words) {
  const said = headline(sent?.status ? sent : explanation);
  const asked = explanation?.query.split(/\s+/).join(" ");
  if (!explanation) return [said, h("p", { class: "hint" }, "The proxy gave no explanation.")];
  const shown = explanation.memories.filter((one) => one.shown);
  const left = explanation.memories.filter((one) => !one.shown);
  const quoted = explanation.documents.filter((one) => one.shown);
  return [
    said,
    unlike(explanation, sent),
    asked && asked !== words
      ? h("p", { class: "hint" }, "Looked for: ", foreign("q", shortened(asked, WHOLE_CHARS)))
      : null,
    shown.length ? h("ul", { class: "weighed" }, shown.map((one) => item(one.memory, ...scored(one)))) : null,
    shown.some(({ why }) => /helps \.[0-4]/.test(why)) ? h("p", { class: "hint" }, TOO) : null,
    quoted.length ? h("ul", { class: "weighed" }, quoted.map(passage)) : null,
    left.length
      ? folded(
          `Left out: ${many(left.length, "memory", "memories")}`,
          h("ul", { class: "weighed" }, left.map((one) => item(one.memory, ...scored(one)))),
        )
      : null,
    explanation.block
      ? folded(
          `The block as it is sent (${many(explanation.tokens, "token")})`,
          foreign("pre", explanation.block, { class: "block", tabIndex: 0 }),
        )
      : null,
  ].filter(Boolean);
}

function headline({ status, reason, count, memories, tokens }) {
  const meaning = REASONS[reason] ?? (reason ? plain(reason) : "");
  const number = count ?? memories.filter((one) => one.shown).length;
  if (status === "injected") {
    const what = number ? many(number, "memory", "memories") : "notes of this session";
    return h(
      "p",
      { class: "headline" },
      h("strong", {}, `The model was given ${what}`),
      ` (${many(tokens, "token")})${meaning ? `: ${meaning}` : ""}.`,
    );
  }
  return h("p", { class: "headline" }, h("strong", {}, "The model was given nothing"), meaning ? `: ${meaning}.` : ".");
}

/** Say so if the request ended otherwise than the explanation: it has a deadline, and an upstream may refuse. */
function unlike(explanation, sent) {
  if (!sent?.status || sent.status === explanation.status) return null;
  const would = explanation.block ? "the block below" : "nothing";
  return h("p", { class: "hint" }, `By itself, the read path would have given it ${would}.`);
}

function scored({ score, why, left_out }) {
  return [
    left_out && h("p", { class: "reason-words" }, LEFT_OUT[left_out] ?? plain(left_out)),
    h(
      "div",
      { class: "score" },
      score === null ? null : [bar(score, "Score"), h("span", { class: "number", "aria-hidden": "true" }, score.toFixed(2))],
      foreign("span", because(why), { class: "why" }),
    ),
  ];
}

function item(memory, ...extra) {
  return h(
    "li",
    {},
    linkTo(memory.id, memory.content),
    " ",
    typeBadge(memory.type),
    extra,
  );
}

/** True for a candidate in quarantine, false for a change of a memory. */
export function isHeld({ object }) {
  return object === "memory.quarantined";
}

function candidate({ content, type }) {
  const review = h("a", { href: "#/quarantine" }, "Review");
  return h("li", {}, foreign("span", shortened(content, WHOLE_CHARS)), " ", badge("not trusted, held for review", "reason"), " ", typeBadge(type), " ", review);
}

function change(event) {
  const { memory_id, by, action, type, content, became } = event;
  const id = action === "superseded" ? by : memory_id;
  return h(
    "li",
    {},
    became && [foreign("s", shortened(content, WHOLE_CHARS), { class: "past" }), " → "],
    linkTo(id, became ?? content),
    " ",
    badge(plain(action), `did-${action}`),
    " ",
    typeBadge(type),
    (action === "archived" || action === "restored") && h("p", { class: "hint" }, how(event)),
  );
}

function linkTo(id, content) {
  return h(
    "a",
    { href: `#/memories/${encodeURIComponent(id)}` },
    foreign("span", shortened(content, WHOLE_CHARS)),
  );
}

function passage(one) {
  const place = [one.name, ...one.headings].join(" › ");
  return h("li", {}, foreign("span", shortened(one.text, WHOLE_CHARS)), " ", badge(place, "project"));
}

function folded(summary, ...content) {
  return h("details", {}, h("summary", {}, summary), content);
}
