"use strict";
// Light or dark: as the system says, until the reader chooses; on paper always light. `redraw` paints what CSS cannot.
function followTheme(redraw) {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("normscope-theme"); } catch { return null; } };
  const wanted = () => stored() || (dark.matches ? "dark" : "light");
  root.dataset.theme = wanted();

  function show(theme) {
    root.dataset.theme = theme;
    return redraw();
  }
  document.getElementById("theme").addEventListener("click", () => {
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("normscope-theme", next); } catch { /* the choice then lasts as long as the page */ }
    show(next);
  });
  dark.addEventListener("change", () => show(wanted()));
  addEventListener("beforeprint", () => show("light"));
  addEventListener("afterprint", () => show(wanted()));
}
