// How memory is doing, as /health says.

import { h } from "./dom.js";
import { broken } from "./pages.js";
import { count, plain } from "./words.js";

export const LEVELS = {
  full: ["ok", "All of memory works", "Search by meaning and by words, ranking, extraction."],
  unjudged: [
    "warn",
    "Search without judgement",
    "The trained heads could not be loaded. What is shown is chosen by vectors and words alone.",
  ],
  lexical: [
    "warn",
    "Search by words only",
    "There is no embedding model. Memories are found by their words, not by their meaning.",
  ],
  session: ["warn", "Sessions only", "Long-term memory is out of reach; conversations are still stored."],
  none: ["bad", "Memory is out of reach", "The chat continues without memory. Nothing is lost."],
};

export function health(page, root) {
  const place = h("div", { class: "health" });
  const look = async () => {
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await page.api.get("health", {}, page.signal);
      place.replaceChildren(...report(answer));
      page.showHealth(answer);
    } catch (error) {
      if (error.name !== "AbortError") place.replaceChildren(broken(error, look));
    }
    place.removeAttribute("aria-busy");
  };
  const again = h("button", { type: "button", on: { click: look } }, "Look again");
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Health"), h("div", { class: "actions" }, again)),
    place,
  );
  look();
  return {};
}

function report(answer) {
  const [mark, title, text] = LEVELS[answer.memory.level] ?? ["warn", plain(answer.memory.level), ""];
  const jobs = Object.entries(answer.jobs ?? {});
  return [
    h(
      "div",
      { class: `level ${mark}` },
      h("h2", {}, title),
      h("p", {}, text),
      answer.memory.reason ? h("p", { class: "hint" }, `Reason: ${plain(answer.memory.reason)}`) : null,
    ),
    h("h2", {}, "Extraction queue"),
    jobs.length
      ? h(
          "dl",
          { class: "tiles" },
          jobs.map(([state, number]) =>
            h(
              "div",
              { class: state === "dead" && number ? "bad" : "" },
              h("dt", {}, plain(state)),
              h("dd", {}, count(number)),
            ),
          ),
        )
      : h("p", { class: "hint" }, "The queue cannot be read."),
    h("p", {}, h("a", { href: "#/jobs" }, "See the jobs")),
    h("p", { class: "hint" }, `memory-proxy ${answer.version}${answer.commit ? ` (${answer.commit})` : ""}`),
  ];
}
