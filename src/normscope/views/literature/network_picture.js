"use strict";
// What the network looks like: citations, works, labels, in the order in which they cover each other.
function networkPicture(net) {
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  let colours = {};
  function readColours() {
    const names = ["this", "cited", "citing", "further", "further-small"];
    colours = Object.fromEntries(names.map((name) => [name, style(`role-${name}`)]));
    for (const name of ["edge", "ink", "muted", "panel", "accent", "rule"]) colours[name] = style(name);
  }
  readColours();

  const column = (i, camera) => net.x[i] * camera.scale + camera.left;
  const row = (i, camera) => net.y[i] * camera.scale + camera.top;
  const size = (i, camera) => Math.min(Math.max(net.radius[i] * camera.scale, 2.2), 26);
  const outside = (x, y, r, width, height) => x < -r || y < -r || x > width + r || y > height + r;

  function citations(pen, camera, width, height, wanted, colour, thick, alpha) {
    const ends = [];
    for (let k = 0; k < net.edges.length; k += 2) {
      const a = net.edges[k], b = net.edges[k + 1];
      if (!net.visible[a] || !net.visible[b] || !wanted(a, b)) continue;
      const x1 = column(a, camera), y1 = row(a, camera), x2 = column(b, camera), y2 = row(b, camera);
      if ((x1 < 0 && x2 < 0) || (y1 < 0 && y2 < 0) || (x1 > width && x2 > width) || (y1 > height && y2 > height)) continue;
      ends.push(x1, y1, x2, y2);
    }
    pen.lines(ends, colour, thick, alpha);
  }
  function symbol(pen, role, x, y, r, alpha) {
    if (role === "cited") pen.square(x, y, r * 0.88, colours.cited, null, alpha);
    else if (role === "both") pen.halves(x, y, r, colours.cited, colours.citing, alpha);
    else if (role === "further") pen.disc(x, y, r * 0.85, r > 4 ? colours.further : colours["further-small"], r > 4 ? colours.muted : null, alpha, 1);
    else pen.disc(x, y, r, colours[role], null, alpha);
  }
  function work(pen, camera, i, alpha) {
    symbol(pen, net.role[i], column(i, camera), row(i, camera), size(i, camera), alpha);
  }
  function years(pen, camera, width, height) {
    let last = -Infinity;
    const lines = [];
    for (const [label, place] of net.ticks) {
      const x = place * camera.scale + camera.left;
      const half = label.length * 3.2 + 5;
      if (x < 0 || x > width || x - half < last) continue;
      last = x + half;
      lines.push(x, 20, x, height);
      pen.text(x, 14, label, colours.muted, colours.panel);
    }
    pen.lines(lines, colours.rule, 1, 0.7);
  }
  // Labels where there is room for them: in front of everything that is in focus, then the most connected works.
  function labels(pen, camera, width, height, near) {
    const cell = 7, across = Math.ceil(width / cell) + 1, taken = new Uint8Array(across * (Math.ceil(height / cell) + 1));
    const cells = function* (x1, y1, x2, y2) {
      for (let y = Math.max(Math.floor(y1 / cell), 0); y <= Math.min(Math.floor(y2 / cell), Math.floor(height / cell)); y++)
        for (let x = Math.max(Math.floor(x1 / cell), 0); x <= Math.min(Math.floor(x2 / cell), across - 1); x++) yield y * across + x;
    };
    for (let i = 0; i < net.n; i++) {
      if (!net.visible[i]) continue;
      const x = column(i, camera), y = row(i, camera), r = size(i, camera) * 0.7;
      if (!outside(x, y, r, width, height)) for (const at of cells(x - r, y - r, x + r, y + r)) taken[at] = 1;
    }
    let drawn = 0;
    const always = (i) => i === net.focus || net.role[i] === "this";
    for (const i of near ? [net.focus, ...near] : net.byDegree) {
      if (drawn >= 90) break;
      if (!net.visible[i]) continue;
      const x = column(i, camera), y = row(i, camera) + size(i, camera) + 11, half = net.label[i].length * 3.1;
      if (x - half < 0 || x + half > width || y - 10 < 0 || y > height) continue;
      const box = [...cells(x - half, y - 9, x + half, y)];
      if (!always(i) && box.some((at) => taken[at])) continue;
      for (const at of box) taken[at] = 1;
      pen.text(x, y, net.label[i], colours.ink, colours.panel, 1, "middle", i === net.focus);
      drawn++;
    }
  }
  // Everything but the works in `moving` and their citations, which `paintMoving` adds.
  function paint(pen, camera, width, height, moving = -1) {
    const near = net.focus < 0 ? null : net.near[net.focus], f = net.focus;
    const faint = near ? 0.35 : 1, strength = Math.min(0.8, Math.max(0.06, 900 / net.edges.length));
    if (net.layout === "years") years(pen, camera, width, height);
    if (!net.hurried) citations(pen, camera, width, height, (a, b) => a !== f && b !== f && a !== moving && b !== moving, colours.edge, 1, strength * faint);
    for (let i = 0; i < net.n; i++) {
      const x = column(i, camera), y = row(i, camera);
      if (i === moving || outside(x, y, 26, width, height)) continue;
      if (!net.visible[i]) work(pen, camera, i, 0.08);
      else if (!near || (i !== f && !near.has(i))) work(pen, camera, i, near ? 0.22 : 1);
    }
    if (moving < 0 && near) inFocus(pen, camera, width, height, near);
    if (moving < 0) labels(pen, camera, width, height, near);
    if (moving < 0 && net.cursor >= 0) ring(pen, camera, net.cursor, colours.accent, 5);
    if (moving < 0 && net.selected >= 0) ring(pen, camera, net.selected, colours.ink, 3);
  }
  function inFocus(pen, camera, width, height, near) {
    const f = net.focus;
    citations(pen, camera, width, height, (a) => a === f, colours.cited, 1.6, 0.8);
    citations(pen, camera, width, height, (a, b) => b === f, colours.citing, 1.6, 0.8);
    for (const i of near) if (net.visible[i]) work(pen, camera, i, 1);
    if (net.visible[f]) work(pen, camera, f, 1);
  }
  function paintMoving(pen, camera, width, height) {
    inFocus(pen, camera, width, height, net.near[net.focus]);
    ring(pen, camera, net.focus, colours.ink, 3);
  }
  function ring(pen, camera, i, colour, gap) {
    if (net.visible[i]) pen.disc(column(i, camera), row(i, camera), size(i, camera) + gap, null, colour, 1, 2);
  }
  // The meaning of the colours, for pictures that leave the page.
  function legend(pen, words, width, height) {
    let x = 14;
    for (const [role, word] of words) {
      symbol(pen, role, x, height - 14, 6, 1);
      pen.text(x + 12, height - 10, word, colours.ink, colours.panel, 1, "start");
      x += 32 + word.length * 6;
    }
  }
  return { paint, paintMoving, legend, readColours, size, column, row, ground: () => colours.panel };
}
