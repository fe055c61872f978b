"use strict";
// Light or dark: as the system says, until the reader chooses; on paper always light. `redraw` paints what CSS cannot;
// it is told whether it is on "screen" or "paper".
function followTheme(redraw) {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("normscope-theme"); } catch { return null; } };
  const wanted = () => stored() || (dark.matches ? "dark" : "light");
  root.dataset.theme = wanted();

  function show(theme, where = "screen") {
    root.dataset.theme = theme;
    root.dataset.paper = where === "paper" ? "yes" : "no";
    return redraw(where);
  }
  document.getElementById("theme").addEventListener("click", () => {
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("normscope-theme", next); } catch { /* the choice then lasts as long as the page */ }
    show(next);
  });
  dark.addEventListener("change", () => show(wanted()));
  addEventListener("beforeprint", () => show("light", "paper"));
  addEventListener("afterprint", () => show(wanted()));
}
