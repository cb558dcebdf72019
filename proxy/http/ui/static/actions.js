// What can be done with a memory except reading it: pin, archive, undo, and back.

import { segment } from "./api.js";
import { h } from "./dom.js";

const DONE = {
  pin: "Pinned: every conversation is given it, and it does not fade.",
  unpin: "No longer pinned.",
  archive: "Archived: no longer used, and can be restored.",
  restore: "Restored: used again.",
  undo: "Undone: the memories that it was made of are back.",
};
const WORDS = { pin: "Pin", unpin: "Unpin", archive: "Archive", restore: "Restore", undo: "Undo" };

/** Do it, and say so; resolves to the API's answer, or to null if it failed. */
export async function act(page, memory, verb) {
  try {
    const [path, query] = [`v1/memory/${segment(memory.id)}`, page.session.query];
    const answer =
      verb === "archive" || verb === "restore"
        ? await page.api.patch(path, { query, body: { archived: verb === "archive" } })
        : await page.api.post(`${path}/${verb}`, { query });
    page.say(DONE[verb]);
    return answer;
  } catch (error) {
    page.fail(error);
    return null;
  }
}

/** Return the buttons for what is possible with the memory now; `changed(verb)`: called after it. */
export function buttons(page, memory, changed) {
  return possible(memory).map((verb) => {
    const click = async () => (await act(page, memory, verb)) && changed(verb);
    return h("button", { type: "button", "data-does": verb, on: { click } }, WORDS[verb]);
  });
}

function possible(memory) {
  if (memory.superseded_by) return [];
  if (memory.archived) return ["restore"];
  const undo = memory.source === "consolidated" ? ["undo"] : [];
  return [...(memory.pinned === undefined ? [] : [memory.pinned ? "unpin" : "pin"]), "archive", ...undo];
}
