"use strict";
// The numbers behind a figure as a table: all that the file has, also where the drawing is thinned.
const MOST_DRAWN = 400, MOST_ROWS = 5000;

// Points spread over the rank and over its logarithm, as formatting.points_to_draw chooses them.
function pointsToDraw(n) {
  if (n <= MOST_DRAWN) return null;
  const early = Math.floor(MOST_DRAWN / 3), even = MOST_DRAWN - early, kept = new Set();
  for (let i = 0; i < even; i++) kept.add(Math.round((i / (even - 1)) * (n - 1)));
  for (let i = 0; i < early; i++) kept.add(Math.round(n ** (i / (early - 1))) - 1);
  return [...kept].sort((a, b) => a - b);
}
function thinned(trace) {
  const n = trace.type === "scatter" && !trace.fill && trace.x ? trace.x.length : 0, kept = pointsToDraw(n);
  if (!kept) return trace;
  const part = (value) => (Array.isArray(value) && value.length === n ? kept.map((i) => value[i]) : value);
  const inside = (value) => value && Object.fromEntries(Object.entries(value).map(([key, item]) => [key, part(item)]));
  const whole = Object.fromEntries(Object.entries(trace).map(([key, item]) => [key, part(item)]));
  return { ...whole, ...(trace.marker && { marker: inside(trace.marker) }), ...(trace.error_y && { error_y: inside(trace.error_y) }) };
}

const plain = (text) => new DOMParser().parseFromString(String(text ?? "").replace(/<br>/g, " "), "text/html").body.textContent;

function titleOf(axis, otherwise) {
  return plain((axis && axis.title && axis.title.text) || otherwise);
}
function tickText(axis, value) {
  const at = axis && axis.tickvals ? axis.tickvals.indexOf(value) : -1;
  return at < 0 ? value : plain(axis.ticktext[at]);
}
// Panels above each other have a heading each, and may have lines of the same name.
function nameOf(trace, spec, i) {
  const layout = spec.layout || {}, panel = Number((trace.yaxis || "y").slice(1) || 1);
  const headings = layout.annotations || [], panels = Object.keys(layout).filter((key) => key.startsWith("yaxis")).length;
  const heading = panels > 1 && headings.length === panels ? plain(headings[panel - 1].text) : "";
  const name = plain(trace.name) || (heading ? "" : titleOf(layout.yaxis, `values ${i + 1}`));
  return name ? (heading ? `${heading}: ${name}` : name) : heading;
}
function cellRows(trace, layout) {
  const names = ((trace.colorbar || {}).tickvals || []).length ? trace.colorbar : null;
  const rows = [];
  trace.z.forEach((line, j) => line.forEach((z, i) => {
    if (z === null) return;
    const about = trace.hovertext && trace.hovertext[j] && trace.hovertext[j][i];
    const place = about ? [plain(about.split("<br>")[0].replace(/^(<b>[^:]*):.*/, "$1"))] : [tickText(layout.yaxis, (trace.y || [])[j] ?? j), tickText(layout.xaxis, (trace.x || [])[i] ?? i)];
    rows.push([...place, names ? tickText(names, z) : z]);
  }));
  return rows;
}
function heatTable(trace, layout) {
  const value = titleOf(trace.colorbar, "value");
  return { columns: trace.hovertext ? ["where", value] : [titleOf(layout.yaxis, "row"), titleOf(layout.xaxis, "column"), value], rows: cellRows(trace, layout) };
}
function columnsOf(trace, name) {
  const found = [[name, trace.y]], bars = trace.error_y;
  if (!bars || !bars.array) return found;
  const below = bars.arrayminus || bars.array, ends = (sign, size) => trace.y.map((y, i) => (y === null || size[i] == null ? null : +(y + sign * size[i]).toPrecision(6)));
  return [...found, [`${name}, from`, ends(-1, below)], [`${name}, to`, ends(1, bars.array)]];
}
function lineTable(traces, spec) {
  const layout = spec.layout || {}, columns = [spec.step_axis ? "step" : titleOf(layout.xaxis, "x")], places = new Map();
  traces.forEach((trace, i) => {
    for (const [name, heights] of columnsOf(trace, nameOf(trace, spec, i))) {
      const column = columns.push(name) - 1;
      trace.x.forEach((x, k) => {
        if (heights[k] == null) return;
        if (!places.has(x)) places.set(x, [tickText(layout.xaxis, plainStep(x))]);
        places.get(x)[column] = heights[k];
      });
    }
  });
  const keys = [...places.keys()], ordered = keys.every((x) => typeof x === "number") ? keys.sort((a, b) => a - b) : keys;
  return { columns, rows: ordered.map((x) => places.get(x)) };
}
const plainStep = (x) => (typeof x === "string" ? plain(x) : x);

function tableOf(spec, set) {
  const missing = (of, kept) => (of > kept ? `${kept.toLocaleString("en")} of ${of.toLocaleString("en")} steps are in this file; normscope export writes all.` : "");
  if (spec.numbers) return { ...spec.numbers, left: missing(spec.numbers.of || 0, spec.numbers.rows.length) };
  const traces = spec.traces.filter((trace) => !trace.set || !spec.buttons || trace.set === set), layout = spec.layout || {};
  const heat = traces.find((trace) => trace.type === "heatmap");
  if (heat) return { ...heatTable(heat, layout), left: "" };
  const histograms = traces.filter((trace) => trace.type === "histogram");
  if (histograms.length) return { columns: ["group", titleOf(layout.xaxis, "value")], rows: histograms.flatMap((t) => t.x.map((x) => [plain(t.name), x])), left: "" };
  const lines = traces.filter((trace) => (trace.name || trace.hoverinfo !== "skip") && trace.x && trace.y && trace.x.some((x) => x !== null));
  const most = Math.max(0, ...lines.map((trace) => trace.of || 0)), kept = Math.max(0, ...lines.map((trace) => (trace.of ? trace.x.length : 0)));
  return { ...lineTable(lines, spec), left: missing(most, kept) };
}
function fillTable(part, spec, set) {
  const { columns, rows, left } = tableOf(spec, set), body = document.createElement("table"), scroll = document.createElement("div");
  const line = (cells, kind) => {
    const row = document.createElement("tr");
    for (let i = 0; i < columns.length; i++) {
      const cell = row.appendChild(document.createElement(kind)), value = cells[i] ?? (kind === "td" ? "–" : "");
      cell.textContent = String(value).replace(/^-(?=\d)/, "−");
      if (kind === "th") cell.scope = "col";
      if (typeof value === "number") cell.className = "right";
    }
    return row;
  };
  body.createTHead().append(line(columns, "th"));
  body.createTBody().append(...rows.slice(0, MOST_ROWS).map((row) => line(row, "td")));
  scroll.className = "scroll";
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "group");
  scroll.setAttribute("aria-label", part.dataset.title);
  scroll.append(body);
  part.replaceChildren(scroll);
  if (left) part.appendChild(Object.assign(document.createElement("p"), { className: "note", textContent: left }));
  const save = part.appendChild(Object.assign(document.createElement("button"), { type: "button", className: "csv", textContent: "Save as CSV" }));
  save.dataset.csv = part.dataset.key;
}
