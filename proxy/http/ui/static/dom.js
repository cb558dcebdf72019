// Elements from values. Text only ever becomes a text node: nothing here parses markup.

/**
 * Return an element. `props`: `class`, `on` ({event: handler}), properties of the element that are not
 * strings of markup (value, checked, disabled …), and attributes for the rest. Empty children are left out.
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) apply(element, name, value);
  element.append(
    ...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

const PROPERTIES = new Set([
  "value",
  "checked",
  "disabled",
  "hidden",
  "open",
  "required",
  "tabIndex",
  "htmlFor",
  "id",
]);

function apply(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "class") element.className = value;
  else if (name === "on")
    for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
  else if (PROPERTIES.has(name)) element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

// Characters that change how the rest of a text is shown, or that are not shown at all, are shown as what
// they are. Joiners and direction marks stay: emoji, Persian and Hebrew need them.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;

/** Return the text with its hidden characters made visible. */
export function visible(text) {
  return String(text ?? "").replace(HIDDEN, (character) => {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return `\u2039U+${code.toString(16).toUpperCase().padStart(4, "0")}\u203a`;
  });
}

/** Return an element that holds a foreign text: shown as it is, in its own direction, breaking nothing around it. */
export function foreign(tag, text, props = {}) {
  return h(tag, { dir: "auto", ...props, class: `foreign ${props.class ?? ""}`.trim() }, visible(text));
}

let made = 0;

/** Return an id that no other element of the page has. */
export function freshId(prefix) {
  made += 1;
  return `${prefix}-${made}`;
}
