// Questions and forms in front of the page, and what all forms share.

import { freshId, h } from "./dom.js";
import { icon } from "./icons.js";
import { failure } from "./words.js";

/**
 * Show a dialog; `build(close)` returns its content, and `close(value)` ends it. Resolves to that value, or
 * to null where it was dismissed. `signal` of what is under way inside aborts with it. While `holds()` is true,
 * Esc does not dismiss it.
 */
export function dialog(title, build, { wide = false, holds = () => false } = {}) {
  const { promise, resolve } = defer();
  const ending = new AbortController();
  let result = null;
  const close = (value = null) => {
    result = value;
    element.close();
  };
  const heading = freshId("dialog");
  const dismiss = h(
    "button",
    { type: "button", class: "quiet square", "aria-label": "Close", on: { click: () => close() } },
    icon("close"),
  );
  const element = h(
    "dialog",
    { class: wide ? "wide" : "", "aria-labelledby": heading },
    h("header", {}, h("h2", { id: heading }, title), dismiss),
    build(close, ending.signal),
  );
  element.addEventListener("cancel", (event) => {
    if (holds()) event.preventDefault();
  });
  element.addEventListener("close", () => {
    ending.abort();
    element.remove();
    resolve(result);
  });
  element.addEventListener("click", (event) => {
    if (event.target === element && !element.querySelector("form")) close();
  });
  document.body.append(element);
  element.showModal();
  return promise;
}

function defer() {
  let resolve;
  const promise = new Promise((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

/** Return a labelled control with a place for a hint and for what is wrong with it. */
export function field(label, control, { hint = null, param = null } = {}) {
  control.id ||= freshId("field");
  const wrong = h("p", { class: "wrong", id: `${control.id}-wrong`, hidden: true });
  const help = hint && h("p", { class: "hint", id: `${control.id}-hint` }, hint);
  control.setAttribute("aria-describedby", [help?.id, wrong.id].filter(Boolean).join(" "));
  if (param) control.dataset.param = param;
  return h("div", { class: "field" }, h("label", { htmlFor: control.id }, label), control, help, wrong);
}

/** Return a <select> of [value, words] rows. */
export function choice(rows, value, props = {}) {
  const select = h(
    "select",
    props,
    rows.map(([key, words]) => h("option", { value: key }, words)),
  );
  select.value = value;
  return select;
}

/** Return the place in a form for what went wrong, and the functions that fill and empty it. */
export function complaints(form) {
  const place = h("div", { class: "complaint", role: "alert", hidden: true });
  const clear = () => {
    place.hidden = true;
    for (const control of form().querySelectorAll("[aria-invalid]")) {
      control.removeAttribute("aria-invalid");
      control.closest(".field").querySelector(".wrong").hidden = true;
    }
  };
  const show = (error) => {
    clear();
    const control =
      error.param && form().querySelector(`[data-param="${CSS.escape(error.param.split(".")[0])}"]`);
    if (control) {
      const folded = control.closest("details");
      if (folded) folded.open = true; // what is folded away could not be seen
      const wrong = control.closest(".field").querySelector(".wrong");
      wrong.textContent = error.message;
      wrong.hidden = false;
      control.setAttribute("aria-invalid", "true");
      control.focus();
      return;
    }
    say(failure(error));
  };
  const say = ({ title, text }) => {
    place.replaceChildren(h("strong", {}, title), h("p", {}, text));
    place.hidden = false;
  };
  return { place, clear, show, say };
}

/** Run `work` with the buttons of the form disabled, and show what it throws. */
export async function working(form, { show, clear }, work) {
  const buttons = [...form.querySelectorAll("button[type=submit]")].filter((button) => !button.disabled);
  clear();
  for (const button of buttons) button.disabled = true;
  form.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") show(error);
  } finally {
    form.removeAttribute("aria-busy");
    for (const button of buttons) button.disabled = false;
  }
}

/** Return a form that never navigates; `submit` is called with it. */
export function form(props, submit, ...children) {
  const element = h("form", { novalidate: true, ...props }, ...children);
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(element);
  });
  return element;
}
