// A chat through this proxy. Next to each answer: what the model was given and why, and what was learned.

import { segment } from "./api.js";
import { field, form } from "./dialogs.js";
import { freshId, h } from "./dom.js";
import { Exchange, isHeld } from "./exchange.js";
import { nothing } from "./pages.js";

const LOOKS_MS = [1_000, 1_000, 2_000, 3_000, 5_000, 8_000, 13_000, 20_000]; // when to look for changes
const KNOWN = 100; // the latest changes; earlier ones are not news
const SLOW_MS = 5_000; // an answer that takes longer to begin is said to be slow
const EXAMPLES = [
  ["I live in Delft and I never eat meat.", "Tell it something. “Read it now” next to the answer shows what is learned."],
  ["What could I cook tonight?", "Ask in a new conversation: the model is given what you said, and you see why."],
  ["Who painted Guernica?", "Ask what needs no memory: the model is given none of it."],
];

export function tryIt(page, root) {
  page.state.talk ??= new Conversation();
  const talk = page.state.talk;
  const settings = makeSettings(page, talk.chosen);
  const text = h("textarea", {
    rows: 2,
    maxlength: 20_000,
    placeholder: "Say something about yourself, or ask about what you said before",
    "aria-label": "Message",
    "aria-keyshortcuts": "/",
    dir: "auto",
  });
  const button = h("button", { type: "submit", class: "primary" }, "Send");
  const say = async (words) => {
    if (talk.busy) return talk.stop();
    if (!words.trim()) return text.focus();
    intro.hidden = true;
    text.value = "";
    button.textContent = "Stop";
    await talk.send(page, words);
    button.textContent = "Send";
    return text.focus();
  };
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!talk.busy) say(text.value);
  });
  const again = () => {
    page.state.talk = new Conversation(talk.chosen);
    root.replaceChildren();
    tryIt(page, root);
  };
  const intro = h("div", { hidden: talk.list.childElementCount > 0 }, introduction(say));
  root.append(
    h(
      "header",
      { class: "view" },
      h("h1", {}, "Try it"),
    ),
    intro,
    talk.list,
    form(
      { class: "say" },
      () => say(text.value),
      h("div", { class: "one-line" }, text, button),
      h("div", { class: "options" }, settings, h("button", { type: "button", on: { click: again } }, "New conversation")),
    ),
  );
  talk.resume(page);
  return { find: text };
}

function introduction(say) {
  return nothing(
    "See what the model is given",
    "Chat with the model behind this proxy. Next to each answer you see the memories that it was given, why, what was left out, and what is learned. Three messages to begin with:",
    EXAMPLES.map(([words, why]) => h("span", {}, h("button", { type: "button", on: { click: () => say(words) } }, words), h("small", {}, why))),
  );
}

/** Return the fields for model and options; what is entered is stored in `chosen`. */
function makeSettings(page, chosen) {
  const models = h("datalist", { id: freshId("models") });
  const text = (name, props) =>
    h("input", {
      value: chosen[name],
      autocomplete: "off",
      spellcheck: "false",
      ...props,
      on: { input: (event) => (chosen[name] = event.target.value.trim()) },
    });
  const model = text("model", { list: models.id, maxlength: 200 });
  const key = text("key", { type: "password" });
  key.addEventListener("change", () => offer());
  const store = h("input", { type: "checkbox", checked: chosen.store });
  store.addEventListener("change", () => (chosen.store = store.checked));
  const folded = h(
    "details",
    {},
    h("summary", {}, "Model and options"),
    h(
      "div",
      { class: "columns" },
      field("Model", model, { hint: "A name that the upstream knows." }),
      field("Project", text("project", { list: "projects" }), { hint: "Empty: none." }),
      !page.session.credential &&
        field("Key for the upstream", key, {
          hint: "Only if the proxy has none of its own. It stays in this tab.",
        }),
    ),
    h("label", { class: "check" }, store, "Remember what I say here"),
    models,
  );
  const offer = async () => {
    const ids = await page.api.models(chosen.key, page.signal);
    models.replaceChildren(...ids.map((id) => h("option", { value: id })));
    if (!model.value) model.value = chosen.model = ids[0] ?? "";
    folded.open ||= !model.value;
  };
  offer();
  return folded;
}

/** One conversation of this tab. It outlives its view, so that one can look at a memory and come back. */
class Conversation {
  #id = `page-${crypto.getRandomValues(new Uint32Array(3)).join("-")}`;
  #messages = [];
  #known = null; // ids of changes of memories
  #last = null; // the last exchange
  #looking = 0; // counts the loops that look for changes: only the latest continues
  #stopping = null; // aborts the answer that is being written
  #isRead = true; // false: it was asked to read the conversation, and that is not done
  busy = false;
  list = h("ol", { class: "thread", "aria-label": "Conversation" });

  constructor(chosen = { model: "", project: "", key: "", store: true }) {
    this.chosen = chosen;
  }

  /** Send what was said, and show what the model was given, its answer, and what is learned. */
  async send(page, said) {
    this.busy = true;
    this.#stopping = new AbortController();
    const exchange = new Exchange(said);
    this.list.append(exchange.element);
    this.#messages.push({ role: "user", content: said });
    try {
      await this.#look(page);
      exchange.explain(await this.#explanation(page));
      exchange.element.scrollIntoView({ block: "start" });
      const answer = await this.#answer(page, exchange);
      if (answer) this.#messages.push({ role: "assistant", content: answer });
      this.#last = exchange;
      if (exchange.isStored) exchange.offerReading(() => this.#read(page));
      this.resume(page);
    } catch (error) {
      this.#messages.pop(); // what got no answer is not part of the conversation
      exchange.fail(error);
    }
    this.busy = false;
  }

  /** Stop the answer; what has arrived of it remains. */
  stop() {
    this.#stopping.abort();
  }

  /** Look for what is learned from the last exchange for a while. */
  async resume(page) {
    if (!this.#last?.isStored) return;
    this.#looking += 1;
    const own = this.#looking;
    for (const wait of LOOKS_MS) {
      await new Promise((resolve) => setTimeout(resolve, wait));
      if (page.signal.aborted || own !== this.#looking) return;
      await this.#look(page);
    }
    this.#isRead = true; // or it takes too long to wait for
  }

  async #read(page) {
    const path = `v1/memory/sessions/${segment(this.#id)}/end`;
    try {
      await page.api.post(path, { query: { ...page.session.query, project_id: this.chosen.project } });
      this.#isRead = false;
      this.#last.reading();
      this.resume(page);
    } catch (error) {
      page.fail(error);
    }
  }

  get #where() {
    const { project } = this.chosen;
    return { session_id: this.#id, ...(project ? { project_id: project } : {}) };
  }

  /** Return the explanation; without one the chat continues. */
  async #explanation(page) {
    const body = { ...page.session.query, ...this.#where, model: this.chosen.model, messages: this.#messages };
    try {
      return await page.api.post("v1/memory/explain", { body, signal: page.signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      return null;
    }
  }

  async #answer(page, exchange) {
    const { model, key, store } = this.chosen;
    const context = { ...page.session.query, ...this.#where };
    const body = { model, messages: this.#messages, stream: true, memory_context: context };
    if (!store) body.memory_config = { auto_store: false };
    const signal = AbortSignal.any([page.signal, this.#stopping.signal]);
    const slow = setTimeout(() => exchange.wait(), SLOW_MS);
    let answer = "";
    try {
      const { headers, pieces } = await page.api.chat(body, { key, signal });
      exchange.sent(headers, store);
      for await (const piece of pieces()) {
        answer += piece;
        exchange.answer(answer);
      }
    } catch (error) {
      if (!answer || error.name !== "AbortError") throw error;
    } finally {
      clearTimeout(slow);
    }
    return answer;
  }

  /** Show what changed in the user's memories since the last look, and whether all is read. */
  async #look(page) {
    const query = { ...page.session.query, limit: KNOWN };
    try {
      const lists = ["timeline", "quarantine"].map((list) => page.api.get(`v1/memory/${list}`, query, page.signal));
      const data = (await Promise.all(lists)).flatMap((list) => list.data);
      const fresh = data.filter(({ id }) => !this.#known?.has(id));
      if (this.#known) this.#last?.learn(fresh);
      if (this.#known && fresh.some(isHeld)) page.waiting("quarantine", "something to review");
      this.#known = new Set([...(this.#known ?? []), ...data.map(({ id }) => id)]);
      if (this.#isRead) return;
      const jobs = await page.api.get("v1/memory/jobs", query, page.signal);
      this.#isRead = !jobs.data.some((job) => job.session_id === this.#id);
      if (this.#isRead) this.#last.read();
    } catch (error) {
      if (error.name !== "AbortError") page.fail(error);
    }
  }
}
