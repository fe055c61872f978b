"use strict";
(() => {
  const by = (id) => document.getElementById(id), all = (what) => [...document.querySelectorAll(what)];
  const data = JSON.parse(by("network-data").textContent);
  const box = by("picture"), tip = by("tip"), panel = by("panel"), said = by("said");
  const cut = (words, most) => (words.length > most ? `${words.slice(0, most - 1).trimEnd()}…` : words);
  const element = (name, words, look) => Object.assign(document.createElement(name), { textContent: words, className: look || "", dir: "auto" });
  const short = (i) => { const work = table.works[i]; return `${cut(work.title, 200)}${work.year ? `, ${work.year}` : ""}, ${work.roleWord}`; };

  const table = worksTable(by("table"), { picked: pick });
  const view = networkView(data, box, {
    selected(i) { describe(i); table.mark(i); hint(-1); said.textContent = i >= 0 ? `Selected: ${short(i)}. ${counts(i)}` : "Nothing is selected."; },
    pointed: hint,
    drawn: placeHint,
    reached(i) { hint(i); said.textContent = short(i); },
  });
  networkInput(view, box);
  box.view = view;
  followTheme(() => view.recolour());
  view.recolour();

  // -- what is said of a work ------------------------------------------------------------

  let hinted = -1;
  function hint(i) {
    hinted = i;
    tip.hidden = i < 0;
    if (i < 0) return;
    const work = table.works[i];
    tip.replaceChildren(element("strong", cut(work.title, 160)), element("span", cut(work.authors, 120)), element("span", [work.year, work.roleWord].filter(Boolean).join(" · ")));
    placeHint();
  }
  function placeHint() {
    if (hinted < 0) return;
    const [x, y] = view.where(hinted), r = view.size(hinted);
    const left = Math.min(Math.max(x - tip.offsetWidth / 2, 4), box.clientWidth - tip.offsetWidth - 4);
    const under = y + r + 8 + tip.offsetHeight <= box.clientHeight || y < box.clientHeight / 2;
    tip.style.transform = `translate(${Math.max(left, 4)}px, ${under ? y + r + 8 : y - r - 8 - tip.offsetHeight}px)`;
  }
  const counts = (i) => `Here it cites ${view.net.cites[i].length} and is cited by ${view.net.citedBy[i].length}.`;
  function describe(i) {
    if (i < 0) return panel.replaceChildren(element("p", "Select a work to see what it cites, what cites it, and where to read it.", "note"));
    const work = table.works[i], role = element("p", "", "role"), links = element("p", "", "out");
    role.append(element("span", "", `dot ${data.role[i]}`), work.roleWord);
    links.append(...work.links.map((link) => link.cloneNode(true)));
    const lines = [element("p", work.authors, "names"), element("p", [work.year, work.venue].filter(Boolean).join(" · "), "note"), links];
    panel.replaceChildren(role, element("h3", cut(work.title, 1000)), ...lines.filter((line) => line.textContent), ...neighbours("Cites here", view.net.cites[i]), ...neighbours("Cited here by", view.net.citedBy[i]));
    panel.scrollTop = 0;
  }
  function neighbours(heading, found) {
    if (!found.length) return [];
    const list = element("ul", "", "neighbours"), most = 40;
    for (const j of found.slice(0, most)) {
      const button = element("button", "", "pick"), item = element("li", "");
      button.type = "button";
      button.append(element("span", "", `dot ${data.role[j]}`), `${data.label[j]} · ${cut(table.works[j].title, 90)}`);
      button.addEventListener("click", () => view.select(j));
      item.append(button);
      list.append(item);
    }
    if (found.length > most) list.append(element("li", `and ${found.length - most} more`, "note"));
    return [element("h4", `${heading}: ${found.length}`), list];
  }
  function pick(i) {
    view.select(i);
    box.scrollIntoView({ block: "nearest" });
  }

  // -- filters -------------------------------------------------------------------------------

  const form = document.querySelector(".filters"), legend = all("[data-role]");
  const year = (id) => { const field = by(id); return field && field.value.trim() !== "" && Number.isFinite(field.valueAsNumber) ? field.valueAsNumber : null; };
  function filter() {
    const on = new Set(legend.filter((button) => button.getAttribute("aria-pressed") === "true").map((button) => button.dataset.role));
    const wanted = { text: by("text").value, from: year("from"), to: year("to"), roles: data.role.map((role) => on.has(role)) };
    const found = table.filter(wanted), total = table.works.length;
    const crossed = wanted.from !== null && wanted.to !== null && wanted.from > wanted.to ? "; the first year is after the last" : "";
    const undated = found.undated ? `; ${found.undated} without a year left out` : "";
    by("count").textContent = `${found.count === total ? `${total} works` : `${found.count} of ${total} works`}${undated}${crossed}`;
    view.show(found.shown);
    hint(-1);
  }
  let waiting = 0;
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, table.works.length > 1000 ? 120 : 0); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    for (const button of legend) button.setAttribute("aria-pressed", "true");
    setTimeout(filter, 0);
  });
  for (const button of legend) button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    filter();
  });
  filter();

  // -- buttons -------------------------------------------------------------------------------

  for (const button of all("[data-layout]")) button.addEventListener("click", () => {
    for (const other of all("[data-layout]")) other.setAttribute("aria-pressed", String(other === button));
    hint(-1);
    view.arrange(button.dataset.layout);
  });
  const zooms = { in: () => view.zoom(1.4), out: () => view.zoom(1 / 1.4), fit: () => view.fit() };
  for (const button of all("[data-zoom]")) button.addEventListener("click", () => { hint(-1); zooms[button.dataset.zoom](); });

  const name = document.title.replace(/ · normscope$/, "").normalize("NFD").replace(/[^\w]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60).toLowerCase() || "paper";
  function save(blob, ending) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${name}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  const words = legend.map((button) => [button.dataset.role, button.textContent]);
  const pictures = { svg: () => view.svg(words, document.querySelector("h1").textContent), png: () => view.png(words) };
  for (const button of all("[data-save]")) button.addEventListener("click", async () => save(await pictures[button.dataset.save](), button.dataset.save));

  let unpacked = null;
  async function entries() {
    const bytes = Uint8Array.from(atob(by("downloads").textContent), (c) => c.charCodeAt(0));
    return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text());
  }
  const formats = {
    bib: ["application/x-bibtex", (found) => found.map((entry) => entry[0]).join("\n")],
    ris: ["application/x-research-info-systems", (found) => found.map((entry) => entry[1]).join("\n")],
    csv: ["text/csv", (found, header) => header + found.map((entry) => entry[2]).join("")],
    json: ["application/vnd.citationstyles.csl+json", (found) => `[\n${found.map((entry) => entry[3]).join(",\n")}\n]\n`],
  };
  for (const button of all("[data-works]")) button.addEventListener("click", async () => {
    try {
      unpacked = unpacked || await entries();
      const [type, write] = formats[button.dataset.works], found = table.shownInOrder().map((i) => unpacked.works[i]);
      save(new Blob([write(found, unpacked.header)], { type }), button.dataset.works);
      by("saved").textContent = `Saved ${found.length} works as ${button.textContent}.`;
    } catch {
      by("saved").textContent = "This browser cannot unpack the works: it has no DecompressionStream. Use normscope paper --export instead.";
    }
  });
  document.body.dataset.drawn = "yes";
})();
