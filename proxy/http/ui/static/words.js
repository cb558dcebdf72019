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

const FAILURES = {
  0: ["The proxy does not answer", "Is it running? Check the connection and try again."],
  403: ["Not allowed", null],
  404: ["It is not here", "It was forgotten, or it never was yours."],
  413: ["Too large", null],
  429: ["Too many requests at once", null],
  500: ["The proxy ran into an error", "Its log says more."],
  503: [
    "The memory store is out of reach",
    "The chat goes on without memory. Nothing is lost; try again in a moment.",
  ],
};

/** Return a failure as {title, text}, in words that help. */
export function failure(error) {
  const [title, text] = FAILURES[error.status] ?? ["That did not work", null];
  const wait = error.retryAfter ? ` Try again in ${many(error.retryAfter, "second")}.` : "";
  return { title, text: (text ?? error.message) + wait };
}
