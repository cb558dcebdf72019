// Start, sign-in and the way from one view to the next. The address holds the view and the open memory's id:
// never a credential, never whose memories they are.

import { Api, ApiError } from "./api.js";
import { h } from "./dom.js";
import { documents } from "./documents.js";
import { health } from "./health.js";
import { insights } from "./insights.js";
import { jobs } from "./jobs.js";
import { listen } from "./keyboard.js";
import { links } from "./links.js";
import { memories } from "./memories.js";
import { broken } from "./pages.js";
import { profile } from "./profile.js";
import { quarantine } from "./quarantine.js";
import { receipts } from "./receipts.js";
import { search } from "./search.js";
import { Session } from "./session.js";
import { sessions } from "./sessions.js";
import { door, frame } from "./shell.js";
import { timeline } from "./timeline.js";
import { transfer } from "./transfer.js";
import { tryIt } from "./try.js";
import { failure } from "./words.js";

// In the order of the menu; a line separates the groups. `asks`: a place is offered if this is answered.
const PLACES = [
  { name: "try", title: "Try it", open: tryIt },
  { name: "memories", title: "Memories", open: memories },
  { name: "profile", title: "Profile", open: profile, asks: "v1/memory/profile" },
  { name: "timeline", title: "Timeline", open: timeline, asks: "v1/memory/timeline" },
  { name: "links", title: "Links", open: links, asks: "v1/memory/entities" },
  { name: "insights", title: "Insights", open: insights, asks: "v1/memory/insights" },
  { name: "documents", title: "Documents", open: documents },
  { name: "search", title: "Search", open: search, begins: true },
  { name: "quarantine", title: "Quarantine", open: quarantine },
  { name: "sessions", title: "Sessions", open: sessions, begins: true },
  { name: "jobs", title: "Jobs", open: jobs },
  { name: "receipts", title: "Receipts", open: receipts },
  { name: "transfer", title: "Export, import", open: transfer },
  { name: "health", title: "Health", open: health },
];
const FIRST = "memories"; // the place that an address without one means
const MAX_PROJECTS = 50;
const NOT_A_KEY = /[^\x21-\x7e]/; // what no header could carry
const REFUSED = "This key or token is not accepted, or no longer. Sign in again.";

const session = new Session();
const api = new Api(new URL("../", document.baseURI), () => session.credential, unauthorized);
let inside = null; // aborts when the one signed in leaves

/** Find out who is there, and show what they may see. */
async function start() {
  inside?.abort();
  document.title = "Memory";
  try {
    session.me = await api.get("v1/memory/me");
  } catch (error) {
    if (error.status !== 401) show(h("main", { class: "outside" }, broken(error, start)));
    return undefined; // at 401 the way in is open already
  }
  if (session.me.needs_credential && !session.credential) return ask("credential");
  if (!session.may("memory"))
    return ask("credential", "This credential may use the model, but not look at memories.");
  if (!session.user) return ask("user");
  return enter();
}

function ask(wants, reason = null) {
  inside?.abort();
  show(
    door({ wants, reason }, async (value) => {
      if (wants === "user") return lookAt(value);
      if (NOT_A_KEY.test(value))
        throw new ApiError(400, { message: "No key or token has such characters.", param: "credential" });
      session.useCredential(value);
      return start();
    }),
  );
}

/** Show this user's memories, if the API takes the name. */
async function lookAt(user) {
  await api.get("v1/memory", { user_id: user, limit: 1 });
  session.lookAt(user);
  enter();
}

function unauthorized(error) {
  const reason = session.credential && error instanceof ApiError ? REFUSED : null;
  session.signOut();
  ask("credential", reason);
}

function signOut() {
  session.signOut();
  location.hash = "";
  start();
}

function show(element) {
  document.body.replaceChildren(element);
  element.querySelector("[autofocus]")?.focus();
}

function enter() {
  inside = new AbortController();
  const shell = frame(PLACES, session, { signOut });
  const shared = makePage(shell);
  let view = null;
  const route = () => {
    const [name, id] = address();
    const named = (wanted) => PLACES.find((one) => one.name === wanted);
    const place = named(name) ?? named(FIRST);
    if (view?.name !== place.name) {
      view?.leave.abort();
      view = opened(place, shared, shell);
    }
    view.route?.(id);
  };
  inside.signal.addEventListener("abort", () => view?.leave.abort());
  addEventListener("hashchange", route, { signal: inside.signal });
  listen({ view: () => view, places: PLACES.map(({ name }) => name), go: shared.go, signal: inside.signal });
  show(shell.element);
  route();
  api.get("health").then(shell.showHealth, () => shell.showHealth(null));
  lookInto(shell, "quarantine", "v1/memory/quarantine", "something to review");
  lookInto(shell, "insights", "v1/memory/contradictions", "something to decide");
  for (const { name, asks } of PLACES) if (asks) offer(shell, name, asks);
}

/** Show a place in the menu once it is known that the proxy has what it shows. */
async function offer(shell, name, path) {
  try {
    await api.get(path, session.query, inside.signal);
  } catch (error) {
    if (error.status === 404 || error.name === "AbortError") return;
  }
  shell.offer(name);
}

/** Say in the menu that something waits for a person. Failures are shown by the view itself. */
async function lookInto(shell, place, path, words) {
  try {
    const { data } = await api.get(path, { ...session.query, limit: 1 }, inside.signal);
    shell.waiting(place, data.length > 0 && words);
  } catch (error) {
    if (!(error instanceof ApiError) && error.name !== "AbortError") throw error;
  }
}

/** Open a view in the frame; its requests end when it is left. */
function opened(place, shared, shell) {
  const leave = new AbortController();
  const page = { ...shared, signal: leave.signal };
  shell.main.replaceChildren();
  shell.main.className = place.name;
  shell.mark(place.name);
  document.title = `${place.title} · Memory`;
  return { ...place.open(page, shell.main), name: place.name, leave };
}

/** Return what the views share. */
function makePage(shell) {
  const projects = new Set();
  return {
    api,
    session,
    state: {}, // state of a view, for when it is opened again
    say: (text) => shell.say(text),
    fail: (error) => {
      const { title, text } = failure(error);
      if (error.name !== "AbortError") shell.say(`${title}. ${text}`, true);
    },
    go: (to) => {
      location.hash = `#/${to}`;
    },
    offerProjects: (names) => {
      for (const name of names) if (name && projects.size < MAX_PROJECTS) projects.add(name);
      shell.projects.replaceChildren(...[...projects].sort().map((name) => h("option", { value: name })));
    },
    showHealth: shell.showHealth,
    waiting: shell.waiting,
  };
}

/** Return the view's name and the id in the address, null without an id. */
function address() {
  const [name, id] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return [name, id ? decodeURIComponent(id) : null];
  } catch {
    return [name, null];
  }
}

start();
