// Before the first paint, and so not a module: a page that turns dark late flashes.
// The one thing in localStorage.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // Storage is off: the system's choice it is.
  }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
