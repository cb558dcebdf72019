// What is around every view: menu, who is signed in, theme, what just happened; and the way in.

import { complaints, field, form, working } from "./dialogs.js";
import { foreign, h } from "./dom.js";
import { LEVELS } from "./health.js";
import { icon } from "./icons.js";
import { showKeys } from "./keyboard.js";

const SAID_MS = 8000;
const THEMES = [
  ["", "Theme: as the system"],
  ["light", "Theme: light"],
  ["dark", "Theme: dark"],
];

/** Return the frame: `element`, `main`, `mark(place)`, `waiting(place, words)`, `offer(place)`, `say(text)`, `showHealth(health)`. */
export function frame(places, session, { signOut }) {
  const main = h("main", { id: "main", tabIndex: -1 });
  const links = places.map(({ name, title, asks, begins }) =>
    h(
      "a",
      { href: `#/${name}`, "data-place": name, hidden: Boolean(asks), class: begins ? "begins" : "" },
      icon(name),
      h("span", {}, title),
    ),
  );
  const link = (place) => links.find((one) => one.dataset.place === place);
  const dot = h(
    "a",
    { class: "vital", href: "#/health", title: "Health" },
    h("span", { class: "dot" }),
    h("span", { class: "words" }, "…"),
  );
  const skip = h("a", { class: "skip", href: "#main" }, "Skip to the content");
  skip.addEventListener("click", (event) => {
    event.preventDefault(); // the address is the router's
    main.focus();
  });
  const toast = h("div", { class: "toast", role: "status" });
  const header = h(
    "header",
    { class: "top" },
    h(
      "a",
      { class: "brand", href: "#/memories" },
      h("strong", {}, "Memory"),
      session.user && h("span", { class: "of" }, "of ", foreign("b", session.user)),
    ),
    h(
      "div",
      { class: "tools" },
      dot,
      themeButton(),
      keysButton(),
      session.mayForgetSignIn && leaveButton(session, signOut),
    ),
  );
  const element = h(
    "div",
    { class: "frame" },
    skip,
    header,
    h("nav", { class: "menu", "aria-label": "Pages" }, links),
    main,
    toast,
  );
  const projects = h("datalist", { id: "projects" });
  element.append(projects);
  const waiting = (place, words) => {
    link(place).querySelector(".waiting")?.remove();
    if (words) link(place).append(h("span", { class: "waiting", role: "img", "aria-label": words, title: words }));
  };
  return {
    element,
    main,
    projects,
    waiting,
    offer: (place) => {
      link(place).hidden = false;
      if (link(place).hasAttribute("aria-current")) mark(links, place);
    },
    mark: (place) => mark(links, place),
    say: saying(toast),
    showHealth: (answer) => vital(dot, answer),
  };
}

function mark(links, place) {
  for (const link of links) {
    if (link.dataset.place === place) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "center" });
    } else link.removeAttribute("aria-current");
  }
}

function saying(toast) {
  let silent = 0;
  return (text, bad = false) => {
    clearTimeout(silent);
    toast.replaceChildren(h("p", { class: bad ? "bad" : "" }, text));
    silent = setTimeout(() => toast.replaceChildren(), SAID_MS);
  };
}

function vital(dot, answer) {
  const [mark, title] = LEVELS[answer?.memory?.level] ?? ["bad", "The proxy does not answer"];
  dot.className = `vital ${mark}`;
  dot.querySelector(".words").textContent = title;
  dot.setAttribute("aria-label", `Health: ${title}`);
}

function themeButton() {
  const button = h("button", { type: "button", class: "quiet square" }, icon("theme"));
  const show = () => {
    const chosen = document.documentElement.dataset.theme ?? "";
    const [, words] = THEMES.find(([name]) => name === chosen);
    button.title = words;
    button.setAttribute("aria-label", `${words}. Change it.`);
  };
  button.addEventListener("click", () => {
    const chosen = document.documentElement.dataset.theme ?? "";
    const next = THEMES[(THEMES.findIndex(([name]) => name === chosen) + 1) % THEMES.length][0];
    keepTheme(next);
    show();
  });
  show();
  return button;
}

function keepTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  try {
    if (name) localStorage.setItem("theme", name);
    else localStorage.removeItem("theme");
  } catch {
    // Storage is off: the choice holds for this page.
  }
}

function keysButton() {
  return h(
    "button",
    {
      type: "button",
      class: "quiet square keys-button",
      "aria-label": "Keys",
      title: "Keys (?)",
      on: { click: showKeys },
    },
    icon("help"),
  );
}

function leaveButton(session, signOut) {
  const words = session.credential ? "Sign out" : "Change user";
  return h(
    "button",
    { type: "button", class: "quiet", on: { click: signOut } },
    icon("leave"),
    h("span", { class: "words" }, words),
  );
}

/** Return the way in: for a credential, or for whose memories to look at. `enter(value)` may refuse by throwing. */
export function door({ wants, reason }, enter) {
  const asked = wants === "user" ? ASKS.user : ASKS.credential;
  const input = h("input", {
    ...asked.input,
    autofocus: true,
    required: true,
    autocapitalize: "none",
    spellcheck: "false",
  });
  const problems = complaints(() => element);
  const element = form(
    { class: "door" },
    () =>
      working(element, problems, async () => (input.value.trim() ? enter(input.value.trim()) : input.focus())),
    h("h1", {}, "Memory"),
    h("p", {}, asked.words),
    reason ? h("p", { class: "reason", role: "alert" }, reason) : null,
    field(asked.label, input, { hint: asked.hint, param: asked.param }),
    problems.place,
    h("footer", {}, h("button", { type: "submit", class: "primary" }, asked.button)),
  );
  return h("main", { class: "outside" }, element);
}

const ASKS = {
  credential: {
    words: "Sign in to see what is remembered, and to correct or erase it.",
    label: "Key or token",
    hint: "The one that your application uses for this proxy. It stays in this tab and is gone when you close it.",
    button: "Sign in",
    param: "credential",
    input: { type: "password", autocomplete: "off" },
  },
  user: {
    words: "This proxy serves more than one person.",
    label: "Whose memories?",
    hint: "The user_id that your application sends.",
    button: "Show them",
    param: "user_id",
    input: { type: "text", autocomplete: "off", maxlength: 256 },
  },
};
