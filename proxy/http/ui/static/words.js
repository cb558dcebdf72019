// How times, numbers and failures are said.

import { h } from "./dom.js";

const STEPS = [
  ["year", 31_557_600],
  ["month", 2_629_800],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const EXACT = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });
const COUNT = new Intl.NumberFormat("en");

/** Return "3 days ago", "in 2 hours", "just now". */
export function relative(seconds, now = Date.now() / 1000) {
  const away = seconds - now;
  for (const [unit, length] of STEPS) {
    if (Math.abs(away) >= length) return RELATIVE.format(Math.trunc(away / length), unit);
  }
  return Math.abs(away) < 10 ? "just now" : RELATIVE.format(Math.trunc(away), "second");
}

/** Return a <time> that says how long ago, and exactly when in its title; a dash for none. */
export function time(seconds) {
  if (typeof seconds !== "number" || Math.abs(seconds) > 8.64e12) return h("span", {}, "–");
  const date = new Date(seconds * 1000);
  return h("time", { datetime: date.toISOString(), title: EXACT.format(date) }, relative(seconds));
}

const DAY = new Intl.DateTimeFormat("en", { dateStyle: "full" });
const CLOCK = new Intl.DateTimeFormat("en", { timeStyle: "short" });

/** Return "Saturday, November 28, 2026", of the visitor's time zone. */
export function day(seconds) {
  return DAY.format(new Date(seconds * 1000));
}

/** Return "9:04 PM". */
export function clock(seconds) {
  return CLOCK.format(new Date(seconds * 1000));
}

/** Return 12,345. */
export function count(number) {
  return COUNT.format(number);
}

/** Return "1 memory", "3 memories". */
export function many(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}

/** Return "planted instruction" of "planted_instruction". */
export function plain(word) {
  return String(word ?? "")
    .replaceAll(/[_-]+/g, " ")
    .trim();
}

// Where a memory or a change comes from.
const HOW = {
  api: "by hand",
  extracted: "from a conversation",
  verbatim: "from a conversation, word for word",
  explicit: "because you asked for it",
  assistant: "from what the assistant said",
  summary: "as the summary of a session",
  consolidated: "from several memories, made one",
  reflection: "concluded from other memories",
  user: "by you",
  use: "because answers did not use it",
  used: "because an answer used it",
  decay: "because it faded",
  consolidation: "merged with others",
  contradiction: "because it contradicted another",
  expiry: "because it expired",
};

/** Return where a change comes from, null if it is a source that has no words. */
export function how({ by, action }) {
  return HOW[by === "use" && action === "restored" ? "used" : by] ?? (action && by.startsWith("mem_") ? "by a newer memory" : null);
}

const GOES = [
  ["memories", "memory", "memories"],
  ["exchanges", "exchange of a conversation", "exchanges of conversations"],
  ["sessions", "session", "sessions"],
  ["jobs", "extraction job", "extraction jobs"],
  ["responses", "stored response", "stored responses"],
  ["quarantined", "quarantined candidate", "quarantined candidates"],
  ["documents", "document", "documents"],
  ["conversations", "stored conversation", "stored conversations"],
];

/** Return the counts of a forget, as an answer or a receipt gives them, in words: those that are not zero. */
export function forgottenWords(answer) {
  const of = (name) => answer[name] ?? answer[`deleted_${name === "memories" ? "count" : name}`] ?? 0;
  return GOES.filter(([name]) => of(name) > 0).map(([name, one, more]) => many(of(name), one, more));
}

// What the headers of an answer say, for people who read no headers.
export const REASONS = {
  not_json: "the request was no JSON",
  other_path: "this address has no memory",
  foreign_origin: "the request came from another site",
  foreign_host: "the proxy does not serve this host name",
  disabled: "memory is switched off",
  no_user: "the request names no user",
  unfilled_user: "the user’s name is a placeholder that was never filled in",
  housekeeping: "a chat program’s own request, such as for a title",
  compaction: "the conversation is being shortened",
  read_off: "reading is switched off",
  tool_forced: "the request forces a tool call",
  no_query: "the message has no words of the user",
  greeting: "small talk needs no memory",
  self_contained: "the message has all that its task needs",
  tool_answers: "live data, or a task for a tool",
  general_fact: "a question of general knowledge",
  short_query: "the message is too short",
  first_turn: "the first message of a conversation, by the operator’s settings",
  plan: "the planning model saw no need",
  no_memories: "nothing is remembered yet",
  below_threshold: "no memory is near enough to the message",
  doubted: "only uncertain preferences were found",
  unanswered: "no memory helps with the message",
  already_visible: "the conversation already shows all that was found",
  forgotten: "the message asks to forget what was found",
  over_budget: "no memory fits into the budget",
  no_place: "the request has no place for it",
  refused: "the upstream refused the request with memory, and took it without",
  profile: "only what applies to every conversation",
  session: "only notes of this session",
  deadline: "memory was not ready in time",
  busy: "too many searches at the same time",
  store_unavailable: "the store is out of reach",
  embedding_failed: "the embedding model failed",
  error: "memory did not answer in time",
  memory_error: "memory failed; the log says more",
};

/** Why a memory was left out. */
export const LEFT_OUT = {
  not_searched: "Not looked for: the message needs no memory.",
  below_threshold: "Not near enough to the message.",
  unanswered: "Read together with the message: it does not help.",
  repeated: "A better memory says the same.",
  doubted: "An uncertain preference. It is shown once the user repeats it.",
  over_limit: "Beyond the number of memories for one request.",
  already_visible: "The conversation already shows it.",
  forgotten: "The message asks to forget it.",
  over_budget: "No room left in the budget.",
};

/** Return the read path's "dense .41, lexical 3.2, helps .93" in plain words. */
export function because(why) {
  if (why === "profile") return "applies to every conversation";
  if (why === "past") return "held at the time that the message asks about";
  return why
    .replace("dense", "close in meaning")
    .replace("lexical", "shared words")
    .replace("helps", "helps with the message")
    .replace(/^link\b/, "shares a name with the best memory, helps");
}

const FAILURES = {
  0: ["The proxy does not answer", "Is it running? Check the connection and try again."],
  403: ["Not allowed", null],
  404: ["It is not here", "It was forgotten, or it never was yours."],
  413: ["Too large", null],
  429: ["Too many requests at once", null],
  500: ["The proxy ran into an error", "Its log says more."],
  502: ["The model did not answer", null],
  504: ["The model took too long", null],
  503: [
    "The memory store is out of reach",
    "The chat continues without memory. Nothing is lost; try again in a moment.",
  ],
};

/** Return a failure as {title, text}, in words that help. */
export function failure(error) {
  const [title, text] = FAILURES[error.status] ?? ["That did not work", null];
  const wait = error.retryAfter ? ` Try again in ${many(error.retryAfter, "second")}.` : "";
  return { title, text: (text ?? error.message) + wait };
}
