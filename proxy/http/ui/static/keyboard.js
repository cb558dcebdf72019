// Keyboard shortcuts. A view adds its own; none works while typing or in a dialog.

import { dialog } from "./dialogs.js";
import { h } from "./dom.js";

const HELP = [
  ["/", "Go to the search field"],
  ["j  k", "Next, previous"],
  ["Enter", "Open"],
  ["Esc", "Close, or leave a field"],
  ["e", "Edit the open memory"],
  ["a", "Archive or restore it"],
  ["p", "Pin it, or remove the pin"],
  ["Delete", "Forget it; in quarantine: discard"],
  ["r", "In quarantine: release"],
  ["n", "Add a memory"],
  ["1 … 9", "The pages, in the order of the menu"],
  ["Ctrl Enter", "Save, in a form"],
  ["?", "These keys"],
];

export function showKeys() {
  return dialog("Keys", () =>
    h(
      "table",
      { class: "keys" },
      h(
        "tbody",
        {},
        HELP.map(([keys, words]) =>
          h(
            "tr",
            {},
            h(
              "th",
              { scope: "row" },
              keys.split("  ").map((key) => h("kbd", {}, key)),
            ),
            h("td", {}, words),
          ),
        ),
      ),
    ),
  );
}

/** Listen for keys; `view()` returns the open view, `places` the addresses of the menu, `go` goes to one. */
export function listen({ view, places, go, signal }) {
  const pressed = (event) => {
    if (
      event.defaultPrevented ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      document.querySelector("dialog[open]")
    )
      return;
    if (event.target.matches("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const run = action(event.key, view(), places, go);
    if (!run) return;
    event.preventDefault();
    run();
  };
  document.addEventListener("keydown", pressed, { signal });
}

function action(key, view, places, go) {
  const own = view?.keys?.[key];
  if (own) return own;
  if (key === "j" || key === "k") return () => step(key === "j" ? 1 : -1, view);
  if (key === "/") return view?.find ? () => view.find.select() ?? view.find.focus() : null;
  if (key === "?") return showKeys;
  if (key === "Escape" && view?.closes) return () => go(view.closes);
  const place = places[Number(key) - 1];
  return place ? () => go(place) : null;
}

/** Move the focus to the next or previous row; past the end of a page, to the page behind it. */
async function step(by, view) {
  const rows = [...document.querySelectorAll("main [data-row]")];
  const current = document.activeElement?.closest("[data-row]");
  const open = rows.findIndex((row) => row.getAttribute("aria-current") === "true");
  const at = current ? rows.indexOf(current) : open;
  const next = at === -1 ? 0 : at + by;
  if (rows[next]) return rows[next].focus();
  if (!(await view?.turn?.(by))) return undefined;
  const turned = [...document.querySelectorAll("main [data-row]")];
  return turned.at(by > 0 ? 0 : -1)?.focus();
}
