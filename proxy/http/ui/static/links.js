// People, places, projects and things that memories share: a graph, the same as a list, and their memories.

import { segment } from "./api.js";
import { foreign, h } from "./dom.js";
import { broken, nothing, toTry } from "./pages.js";
import { graph } from "./plots.js";
import { badge, memoryRow } from "./rows.js";
import { many, plain } from "./words.js";

const MOST = 100; // entities; more would be a blot

export function links(page, root) {
  const place = h("div", { class: "linked" });
  const found = h("section", { class: "of-entity", "aria-live": "polite" });
  let shown = { entities: [], mark: () => {} };
  const look = async () => {
    place.setAttribute("aria-busy", "true");
    try {
      const query = { ...page.session.query, limit: MOST };
      const { data } = await page.api.get("v1/memory/entities", query, page.signal);
      const most = [...data].sort((one, other) => other.memories - one.memories); // stable: then the latest
      shown = show(page, place, found, most);
    } catch (error) {
      if (error.name !== "AbortError") place.replaceChildren(broken(error, look));
    }
    place.removeAttribute("aria-busy");
  };
  root.append(
    h("header", { class: "view" }, h("h1", {}, "Links")),
    h("p", { class: "lead" }, "What memories have in common. A question about one may also be given a memory that is linked to it."),
    place,
  );
  const loaded = look();
  const route = async (id) => {
    await loaded;
    const entity = shown.entities.find((one) => one.id === id);
    shown.mark(entity?.id ?? null);
    found.replaceChildren(...(entity ? [] : [h("p", { class: "idle" }, "Choose one to see its memories.")]));
    if (entity) await memoriesOf(page, found, entity, shown.entities);
  };
  return { route, closes: "links" };
}

function show(page, place, found, entities) {
  if (!entities.length) {
    place.replaceChildren(nothing("Nothing is linked yet", "People, places and projects that several memories name will be here.", toTry(page)));
    return { entities, mark: () => {} };
  }
  const picture = graph(
    entities.map(({ id, name, memories, linked }) => ({ id, name, size: memories, linked })),
    (id) => page.go(`links/${encodeURIComponent(id)}`),
  );
  const list = h("ol", { class: "rows entities", "aria-label": "Entities" }, entities.map(row));
  const mark = (id) => {
    picture.mark(id);
    for (const link of list.querySelectorAll("[data-row]"))
      if (link.dataset.row === id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
  };
  place.replaceChildren(h("div", { class: "picture" }, picture.element), list, found);
  return { entities, mark };
}

function row(entity) {
  return h(
    "li",
    {},
    h(
      "a",
      { class: "row", href: `#/links/${encodeURIComponent(entity.id)}`, "data-row": entity.id },
      foreign("span", entity.name),
      " ",
      entity.kind !== "name" && badge(plain(entity.kind), "tag-kind"),
      h("div", { class: "meta" }, h("span", {}, many(entity.memories, "memory", "memories")), entity.linked.length > 0 && h("span", {}, many(entity.linked.length, "link"))),
    ),
  );
}

async function memoriesOf(page, place, entity, entities) {
  place.setAttribute("aria-busy", "true");
  try {
    const path = `v1/memory/entities/${segment(entity.id)}/memories`;
    const { data } = await page.api.get(path, page.session.query, page.signal);
    const linked = entities.filter(({ id }) => entity.linked.includes(id));
    place.replaceChildren(
      h("h2", {}, foreign("span", entity.name)),
      entity.aliases.length ? h("p", { class: "hint" }, "Also: ", foreign("span", entity.aliases.join(", "))) : "",
      linked.length
        ? h("p", { class: "meta" }, "Linked to ", linked.map(({ id, name }) => foreign("a", name, { href: `#/links/${encodeURIComponent(id)}` })))
        : "",
      h("ol", { class: "rows" }, data.map((memory) => memoryRow(memory, `#/memories/${encodeURIComponent(memory.id)}`))),
    );
  } catch (error) {
    if (error.name !== "AbortError") place.replaceChildren(broken(error, () => memoriesOf(page, place, entity, entities)));
  }
  place.removeAttribute("aria-busy");
}
