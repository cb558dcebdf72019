// Take everything along, and bring it back: NDJSON, one memory a line with its history.

import { complaints, field, form, working } from "./dialogs.js";
import { foreign, h } from "./dom.js";
import { count, many } from "./words.js";

const NEWLINE = 10;
const KEPT_MS = 60_000; // a browser needs the object's address until it has begun to save it

export function transfer(page, root) {
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Export and import")),
    h("div", { class: "panels" }, exporting(page), importing(page)),
  );
  return {};
}

function exporting(page) {
  const project = h("input", { list: "projects", autocomplete: "off" });
  const everyone = h("input", { type: "checkbox" });
  const progress = h("p", { class: "status", role: "status" }, "\u00a0");
  const problems = complaints(() => element);
  const all = page.session.may("admin") && page.session.mayChooseUser;
  const save = async () => {
    const whose = everyone.checked ? {} : page.session.query;
    const query = { ...whose, project_id: everyone.checked ? "" : project.value.trim() };
    progress.textContent = "Asking …";
    try {
      const response = await page.api.stream("v1/memory/export", query, page.signal);
      const { blob, lines } = await collected(response.body, (so) => {
        progress.textContent = `${many(so, "memory", "memories")} so far …`;
      });
      download(blob, `memories-${new Date().toISOString().slice(0, 10)}.ndjson`);
      progress.textContent = `${many(lines, "memory", "memories")} exported.`;
    } catch (error) {
      progress.textContent = "\u00a0";
      throw error;
    }
  };
  const element = form(
    { class: "panel", "aria-label": "Export" },
    () => working(element, problems, save),
    h("h2", {}, "Export"),
    h(
      "p",
      {},
      "Every memory with its history, also what is archived or superseded, in one file: yours to keep, and readable by any program.",
    ),
    field("Project", project, { param: "project_id", hint: "Empty: everything." }),
    all ? h("label", { class: "check" }, everyone, "All users of the tenant") : null,
    problems.place,
    h("footer", {}, progress, h("button", { type: "submit", class: "primary" }, "Export")),
  );
  return element;
}

/** Read a stream into a Blob, which a browser keeps outside of its heap; count its lines as they come. */
async function collected(stream, progress) {
  let lines = 0;
  const counting = new TransformStream({
    transform(chunk, out) {
      for (const byte of chunk) if (byte === NEWLINE) lines += 1;
      progress(lines);
      out.enqueue(chunk);
    },
  });
  const blob = await new Response(stream.pipeThrough(counting)).blob();
  return { blob: new Blob([blob], { type: "application/x-ndjson" }), lines };
}

function download(blob, name) {
  const href = URL.createObjectURL(blob);
  h("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), KEPT_MS);
}

function importing(page) {
  const file = h("input", { type: "file", accept: ".ndjson,.jsonl,application/x-ndjson" });
  const bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Upload" });
  const problems = complaints(() => element);
  const result = h("div", { class: "result", role: "status" });
  const send = async () => {
    if (!file.files.length) return file.focus();
    result.replaceChildren();
    bar.hidden = false;
    try {
      const answer = await page.api.upload("v1/memory/import", page.session.query, file.files[0], (share) =>
        toldShare(bar, share),
      );
      result.replaceChildren(...outcome(answer));
      page.say(`${many(answer.imported, "memory", "memories")} imported.`); // also if the view was left in the meantime
      file.value = "";
    } finally {
      bar.hidden = true;
    }
  };
  const element = form(
    { class: "panel", "aria-label": "Import" },
    () => working(element, problems, send),
    h("h2", {}, "Import"),
    h(
      "p",
      {},
      "A file made by Export, here or elsewhere. Memories that exist already are not changed; secrets are refused.",
    ),
    field("File", file, { param: "file" }),
    bar,
    problems.place,
    result,
    h("footer", {}, h("button", { type: "submit", class: "primary" }, "Import")),
  );
  return element;
}

/** Show how much was sent; once all is, that it is being read. */
function toldShare(bar, share) {
  if (share < 1) bar.value = share;
  else bar.removeAttribute("value");
}

function outcome(answer) {
  const wrong = answer.errors ?? [];
  return [
    h(
      "p",
      {},
      h("strong", {}, `${count(answer.imported)} imported`),
      `, ${count(answer.skipped)} there already, ${count(answer.refused)} refused.`,
    ),
    wrong.length
      ? h(
          "ul",
          { class: "wrongs" },
          wrong.map((one) => h("li", {}, `Line ${one.line}: `, foreign("span", one.message))),
        )
      : "",
  ];
}
