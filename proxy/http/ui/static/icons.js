// What is drawn: line icons on a grid of 24, and bars.

const NAMESPACE = "http://www.w3.org/2000/svg";
const STROKES = {
  try: ["M5 4h14v11h-8l-4 4v-4H5z", "M9 8.500h6", "M9 11.500h4"],
  memories: ["M4 6h16", "M4 12h16", "M4 18h10"],
  profile: ["M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M4.500 20c1-4 4-6 7.500-6s6.500 2 7.500 6"],
  links: ["M6 4a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5z", "M18 8a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5z", "M8 15.500a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5z", "M8.300 7.500 15.700 9.700", "M16 12.500 10 16.500"],
  insights: ["M4 20V4", "M4 20h16", "M8 17v-5", "M12 17V8", "M16 17v-7"],
  timeline: ["M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16z", "M12 7v5l-3.500 2"],
  documents: ["M6 3h8l4 4v14H6z", "M14 3v4h4", "M9 12h6", "M9 16h6"],
  search: ["M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14z", "M16.2 16.2 21 21"],
  quarantine: ["M12 3 4 6v6c0 5 3.4 8 8 9 4.6-1 8-4 8-9V6z", "M12 8v5", "M12 16.4v.1"],
  sessions: ["M4 4h11v8H8l-4 3z", "M18 9h2v8l2 3-5-3H9v-2"],
  jobs: ["M6 4h12", "M6 20h12", "M7 4c0 5 4 6 5 8-1 2-5 3-5 8", "M17 4c0 5-4 6-5 8 1 2 5 3 5 8"],
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
  const spoken = label
    ? { role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": share }
    : { "aria-hidden": "true" };
  const size = { viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "bar-graph" };
  return drawn("svg", { ...size, ...spoken }, drawn("rect", { width: share * 100, height: 8 }));
}

/** Return an element of SVG. */
export function drawn(tag, attributes, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
