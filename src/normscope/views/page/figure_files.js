"use strict";
// What a figure or a table is saved as: SVG, PNG, CSV.
function saveFile(address, name) {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
}
function saveTable(button) {
  const table = button.closest(".grid, .numbers").querySelector("table");
  const cell = (c) => `"${c.textContent.replaceAll('"', '""').replaceAll("−", "-")}"`;
  const lines = [...table.rows].map((row) => [...row.cells].map(cell).join(","));
  const address = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  saveFile(address, `${button.dataset.csv}.csv`);
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
function wrapped(text, letters) {
  const lines = [""];
  for (const word of text.split(/\s+/)) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= letters) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) && " ") + word;
  }
  return lines;
}
const IMAGE_WIDTH = 900;
// A saved figure is light whatever the page is, has a ground and its title: it will stand alone.
async function saveImage(button, title, picture, style) {
  const root = document.documentElement, before = root.dataset.theme, format = button.dataset.image;
  root.dataset.theme = "light";
  const [traces, layout] = picture(), data = traces.filter((trace) => trace.visible !== "legendonly"), [ground, ink] = [style("panel"), style("ink")];
  root.dataset.theme = before;
  const lines = wrapped(title, 95), top = 22 * lines.length + 12;
  const escaped = lines.map((line) => line.replaceAll("&", "&amp;").replaceAll("<", "&lt;")).join("<br>");
  const below = layout.legend.y > 1 ? { y: -0.14, yanchor: "top" } : {}; // the title has the place above
  const whole = {
    ...layout, autosize: false, width: IMAGE_WIDTH, height: layout.height + top, paper_bgcolor: ground, plot_bgcolor: ground,
    margin: { ...layout.margin, t: layout.margin.t + top, l: 64, r: 24 }, legend: { ...layout.legend, ...below },
    title: { text: escaped, x: 0, xref: "container", xanchor: "left", y: 1, yref: "container", yanchor: "top", pad: { l: 16, t: 12 }, font: { size: 17, color: ink } },
  };
  saveFile(await Plotly.toImage({ data, layout: whole }, { format, width: whole.width, height: whole.height, scale: format === "png" ? 2 : 1 }), `${button.dataset.name}.${format}`);
}
