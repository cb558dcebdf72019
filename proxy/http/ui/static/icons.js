// What is drawn: line icons on a grid of 24, and bars.

const NAMESPACE = "http://www.w3.org/2000/svg";
const STROKES = {
  try: ["M5 4h14v11h-8l-4 4v-4H5z", "M9 8.500h6", "M9 11.500h4"],
  memories: ["M4 6h16", "M4 12h16", "M4 18h10"],
  search: ["M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14z", "M16.2 16.2 21 21"],
  quarantine: ["M12 3 4 6v6c0 5 3.4 8 8 9 4.6-1 8-4 8-9V6z", "M12 8v5", "M12 16.4v.1"],
  sessions: ["M4 4h11v8H8l-4 3z", "M18 9h2v8l2 3-5-3H9v-2"],
  jobs: ["M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16z", "M12 8v4.5l3 2"],
  receipts: ["M6 3h12v18l-3-2-3 2-3-2-3 2z", "M9 8h6", "M9 12h6"],
  transfer: ["M8 4v14", "M4 14l4 4 4-4", "M16 20V6", "M12 10l4-4 4 4"],
  health: ["M3 12h4l3-7 4 14 3-7h4"],
  add: ["M12 5v14", "M5 12h14"],
  back: ["M15 5l-7 7 7 7"],
  close: ["M6 6l12 12", "M18 6 6 18"],
  theme: ["M12 4a8 8 0 1 0 0 16z", "M12 4a8 8 0 0 1 0 16"],
  help: [
    "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16z",
    "M9.8 9.6a2.3 2.3 0 1 1 3 2.5c-.6.3-.8.7-.8 1.4",
    "M12 16.4v.1",
  ],
  leave: ["M14 4H6v16h8", "M11 12h10", "M17.500 8.500 21 12l-3.500 3.500"],
};

/** Return the icon; it says nothing to a screen reader, its button does. */
export function icon(name) {
  const strokes = STROKES[name].map((d) => drawn("path", { d }));
  return drawn("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, ...strokes);
}

/** Return a bar of the share `value` of 1. Browsers draw <meter> each in their own way, and the CSP allows no inline width. */
export function bar(value, label) {
  const share = Math.min(1, Math.max(0, Number(value) || 0));
  const told = label
    ? { role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": share }
    : { "aria-hidden": "true" };
  const size = { viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "bar-graph" };
  return drawn("svg", { ...size, ...told }, drawn("rect", { width: share * 100, height: 8 }));
}

function drawn(tag, attributes, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
