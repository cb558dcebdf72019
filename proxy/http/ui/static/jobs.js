// The extraction queue: what waits, what runs, what died and can be tried again.

import { segment } from "./api.js";
import { choice } from "./dialogs.js";
import { foreign, h } from "./dom.js";
import { nothing, PAGE_SIZE, PagedList } from "./pages.js";
import { badge } from "./rows.js";
import { many, plain, time } from "./words.js";

const STATES = [
  ["", "All states"],
  ["queued", "Queued"],
  ["running", "Running"],
  ["waiting", "Waiting for a credential"],
  ["dead", "Dead"],
];
const LANES = { 1: "asked for", 2: "ordinary", 3: "batch" };

export function jobs(page, root) {
  const state = choice(STATES, "", { "aria-label": "State" });
  const everyone = h("input", { type: "checkbox" });
  const whose = () => (everyone.checked ? {} : page.session.query);
  const list = new PagedList({
    label: "Jobs",
    noun: ["job", "jobs"],
    signal: page.signal,
    load: (after, signal) =>
      page.api.get("v1/memory/jobs", { ...whose(), state: state.value, limit: PAGE_SIZE, after }, signal),
    row: (job) => row(job, everyone.checked, () => retry(`v1/memory/jobs/${segment(job.id)}/retry`)),
    empty: () =>
      nothing("No jobs", state.value ? "None is in this state." : "All that was said has been read."),
  });
  const retry = async (path) => {
    try {
      const { revived } = await page.api.post(path, { query: whose() });
      page.say(revived ? `${many(revived, "job")} queued again.` : "There was nothing to try again.");
      await list.reload();
    } catch (error) {
      page.fail(error);
    }
  };
  for (const control of [state, everyone]) control.addEventListener("change", () => list.first());
  const all = page.session.may("admin") && page.session.mayChooseUser;
  root.append(
    h(
      "header",
      { class: "view" },
      h("h1", {}, "Jobs"),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "button", on: { click: () => retry("v1/memory/jobs/retry") } }, "Retry all dead"),
      ),
    ),
    h(
      "div",
      { class: "filters" },
      state,
      all && h("label", { class: "check" }, everyone, "All users"),
      refresh(list),
    ),
    list.element,
  );
  list.first();
  return { turn: (step) => list.turn(step) };
}

function refresh(list) {
  return h("button", { type: "button", class: "quiet", on: { click: () => list.reload() } }, "Refresh");
}

function row(job, showUser, retry) {
  return h(
    "li",
    { class: "row line", tabIndex: -1, "data-row": job.id },
    h("div", { class: "name" }, badge(job.state, `job-${job.state}`), " ", foreign("code", job.session_id)),
    h(
      "div",
      { class: "meta" },
      showUser && foreign("strong", job.user_id),
      job.project_id && badge(job.project_id, "project"),
      h("span", {}, many(job.exchanges ?? 0, "exchange")),
      h("span", {}, LANES[job.lane] ?? ""),
      job.attempts > 0 && h("span", {}, many(job.attempts, "try", "tries")),
      job.reason && foreign("span", plain(job.reason), { class: "due" }),
      h("span", { class: "when" }, "since ", time(job.created_at)),
    ),
    job.state === "dead" ? h("button", { type: "button", on: { click: retry } }, "Retry") : null,
  );
}
