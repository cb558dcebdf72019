// Plots as SVG: stacked bars, and a graph of linked things. Each comes with the same as text.

import { h, visible } from "./dom.js";
import { bar, drawn } from "./icons.js";
import { count } from "./words.js";

const [WIDTH, HEIGHT, GAP] = [600, 140, 0.25];

/** Return a figure of stacked bars: one for each row, of the fields in `series` ([field, words]). */
export function bars(title, rows, series) {
  const sum = (row) => series.reduce((total, [name]) => total + (row[name] ?? 0), 0);
  const highest = Math.max(0, ...rows.map(sum));
  const most = highest || 1;
  const step = WIDTH / Math.max(1, rows.length);
  const column = (row, at) => {
    let top = HEIGHT;
    const parts = series.map(([name], number) => {
      const height = ((row[name] ?? 0) / most) * HEIGHT;
      top -= height;
      return drawn("rect", { x: (at + GAP / 2) * step, y: top, width: step * (1 - GAP), height, class: `series-${number}` });
    });
    return drawn("g", {}, titled(`${row.date}: ${described(row, series)}`), ...parts);
  };
  const picture = drawn(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "plot", "aria-hidden": "true" },
    ...rows.map(column),
  );
  return h(
    "figure",
    { class: "panel" },
    h("figcaption", {}, h("strong", {}, title), series.length > 1 && legend(series)),
    picture,
    h("p", { class: "axis hint" }, h("span", {}, rows[0]?.date ?? ""), h("span", {}, `at most ${count(highest)}`), h("span", {}, rows.at(-1)?.date ?? "")),
    h("details", {}, h("summary", {}, "As a table"), table(rows.filter((row) => sum(row) > 0), series)),
  );
}

/** Return a figure of one bar for each row: [words, number]. */
export function shares(title, rows) {
  const most = Math.max(1, ...rows.map(([, number]) => number));
  const line = ([words, number]) => h("div", {}, h("dt", {}, words), h("dd", {}, bar(number / most), ` ${count(number)}`));
  return h("figure", { class: "panel" }, h("figcaption", {}, h("strong", {}, title)), h("dl", { class: "shares" }, rows.map(line)));
}

function described(row, series) {
  return series.map(([name, words]) => `${count(row[name] ?? 0)} ${words}`).join(", ");
}

function legend(series) {
  return h("span", { class: "legend" }, series.map(([, words], number) => h("span", { class: `mark-${number}` }, words)));
}

function table(rows, series) {
  const heads = [["date", ""], ...series];
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, heads.map(([, words]) => h("th", { scope: "col" }, words)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, heads.map(([name]) => h("td", {}, String(row[name] ?? 0)))))),
  );
}

function titled(text) {
  const title = drawn("title", {});
  title.textContent = visible(text);
  return title;
}

// ------------------------------------------------------------ a graph
const [SIZE, EDGE, STEPS, REPEL, SPRING, CENTER] = [600, 60, 260, 9_000, 0.02, 0.012];

/**
 * Return the picture of a graph. `nodes`: {id, name, size, linked: [ids]}; `open(id)` is called for a click.
 * It is only for the eye: a list beside it has the same for the keyboard and for screen readers.
 */
export function graph(nodes, open) {
  const places = layout(nodes);
  const seen = new Set();
  const lines = [];
  for (const node of nodes)
    for (const other of node.linked) {
      const pair = [node.id, other].sort().join("\0");
      if (!places.has(other) || seen.has(pair)) continue;
      seen.add(pair);
      const [from, to] = [places.get(node.id), places.get(other)];
      lines.push(drawn("line", { x1: from.x, y1: from.y, x2: to.x, y2: to.y }));
      lines.at(-1).ends = [node.id, other];
    }
  const circles = nodes.map((node) => {
    const { x, y } = places.get(node.id);
    const label = drawn("text", { x, y: y + radius(node) + 3, "text-anchor": "middle" });
    label.textContent = visible(node.name.length > 22 ? `${node.name.slice(0, 21)}…` : node.name);
    const group = drawn("g", { class: "node" }, titled(node.name), drawn("circle", { cx: x, cy: y, r: radius(node) }), label);
    group.addEventListener("click", () => open(node.id));
    group.id_ = node.id;
    return group;
  });
  const picture = drawn("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "graph", "aria-hidden": "true" }, ...lines, ...circles);
  const mark = (id) => {
    for (const line of lines) line.classList.toggle("on", line.ends.includes(id));
    for (const circle of circles) circle.classList.toggle("on", circle.id_ === id);
  };
  return { element: picture, mark };
}

function radius({ size }) {
  return 6 + 4 * Math.sqrt(size);
}

/** Return a place for each node: they repel each other, and links pull. Always the same for the same nodes. */
function layout(nodes) {
  const places = new Map(
    nodes.map(({ id }, at) => [id, { x: SIZE / 2 + 20 * Math.sqrt(at) * Math.cos(2.4 * at), y: SIZE / 2 + 20 * Math.sqrt(at) * Math.sin(2.4 * at) }]),
  );
  const all = [...places.values()];
  const springs = nodes.flatMap(({ id, linked }) => linked.filter((other) => places.has(other)).map((other) => [places.get(id), places.get(other)]));
  for (let step = 0; step < STEPS; step += 1) {
    const most = 12 * (1 - step / STEPS) + 0.5;
    for (const place of all) Object.assign(place, { dx: (SIZE / 2 - place.x) * CENTER, dy: (SIZE / 2 - place.y) * CENTER });
    for (let i = 0; i < all.length; i += 1)
      for (let j = i + 1; j < all.length; j += 1) push(all[i], all[j], (far) => -REPEL / (far * far * far));
    for (const [one, other] of springs) push(one, other, () => SPRING);
    for (const place of all) {
      const speed = Math.hypot(place.dx, place.dy) || 1;
      const share = Math.min(1, most / speed);
      place.x += place.dx * share;
      place.y += place.dy * share;
    }
  }
  fit(all);
  return places;
}

/** Stretch the places over the picture, with room for names. */
function fit(all) {
  for (const axis of ["x", "y"]) {
    const values = all.map((place) => place[axis]);
    const [low, spread] = [Math.min(...values), Math.max(...values) - Math.min(...values)];
    for (const place of all) place[axis] = spread ? EDGE + ((place[axis] - low) / spread) * (SIZE - 2 * EDGE) : SIZE / 2;
  }
}

function push(one, other, force) {
  const [dx, dy] = [other.x - one.x, other.y - one.y];
  const strength = force(Math.max(8, Math.hypot(dx, dy)));
  one.dx += dx * strength;
  one.dy += dy * strength;
  other.dx -= dx * strength;
  other.dy -= dy * strength;
}
