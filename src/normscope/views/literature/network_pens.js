"use strict";
// Two pens with the same strokes: one paints a canvas, the other writes SVG.
function canvasPen(context) {
  const pieces = 400; // a path of all lines at once is slow to fill in
  function shape(trace, fill, edge, alpha, width) {
    context.globalAlpha = alpha;
    context.beginPath();
    trace();
    if (fill) { context.fillStyle = fill; context.fill(); }
    if (edge) { context.strokeStyle = edge; context.lineWidth = width; context.stroke(); }
    context.globalAlpha = 1;
  }
  return {
    lines(ends, colour, width, alpha) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.globalAlpha = alpha;
      for (let from = 0; from < ends.length; from += 4 * pieces) {
        const to = Math.min(from + 4 * pieces, ends.length);
        context.beginPath();
        for (let k = from; k < to; k += 4) {
          context.moveTo(ends[k], ends[k + 1]);
          context.lineTo(ends[k + 2], ends[k + 3]);
        }
        context.stroke();
      }
      context.globalAlpha = 1;
    },
    disc(x, y, r, fill, edge, alpha, width = 1.5) {
      shape(() => context.arc(x, y, r, 0, 2 * Math.PI), fill, edge, alpha, width);
    },
    square(x, y, r, fill, edge, alpha, width = 1.5) {
      shape(() => context.rect(x - r, y - r, 2 * r, 2 * r), fill, edge, alpha, width);
    },
    halves(x, y, r, left, right, alpha) {
      shape(() => context.arc(x, y, r, Math.PI / 2, 1.5 * Math.PI), left, null, alpha, 0);
      shape(() => context.arc(x, y, r, -Math.PI / 2, Math.PI / 2), right, null, alpha, 0);
    },
    text(x, y, words, colour, halo, alpha = 1, anchor = "middle", bold = false) {
      context.globalAlpha = alpha;
      context.font = `${bold ? "600 " : ""}11px ${this.family}`;
      context.textAlign = anchor === "middle" ? "center" : anchor;
      context.lineJoin = "round";
      context.lineWidth = 3;
      context.strokeStyle = halo;
      context.strokeText(words, x, y);
      context.fillStyle = colour;
      context.fillText(words, x, y);
      context.globalAlpha = 1;
    },
    family: "sans-serif",
  };
}
function svgPen() {
  const parts = [], n = (value) => String(Math.round(value * 10) / 10);
  const escaped = (words) => words.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const look = (fill, edge, alpha, width) =>
    `fill="${fill || "none"}"${edge ? ` stroke="${edge}" stroke-width="${width}"` : ""}${alpha < 1 ? ` opacity="${alpha}"` : ""}`;
  return {
    lines(ends, colour, width, alpha) {
      let path = "";
      for (let k = 0; k < ends.length; k += 4) path += `M${n(ends[k])} ${n(ends[k + 1])}L${n(ends[k + 2])} ${n(ends[k + 3])}`;
      if (path) parts.push(`<path d="${path}" ${look(null, colour, alpha, width)}/>`);
    },
    disc(x, y, r, fill, edge, alpha, width = 1.5) {
      parts.push(`<circle cx="${n(x)}" cy="${n(y)}" r="${n(r)}" ${look(fill, edge, alpha, width)}/>`);
    },
    square(x, y, r, fill, edge, alpha, width = 1.5) {
      parts.push(`<rect x="${n(x - r)}" y="${n(y - r)}" width="${n(2 * r)}" height="${n(2 * r)}" ${look(fill, edge, alpha, width)}/>`);
    },
    halves(x, y, r, left, right, alpha) {
      const half = (sweep, fill) =>
        parts.push(`<path d="M${n(x)} ${n(y - r)}A${n(r)} ${n(r)} 0 0 ${sweep} ${n(x)} ${n(y + r)}Z" ${look(fill, null, alpha)}/>`);
      half(0, left);
      half(1, right);
    },
    text(x, y, words, colour, halo, alpha = 1, anchor = "middle", bold = false) {
      parts.push(`<text x="${n(x)}" y="${n(y)}" text-anchor="${anchor}"${bold ? ' font-weight="600"' : ""} fill="${colour}" stroke="${halo}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"${alpha < 1 ? ` opacity="${alpha}"` : ""}>${escaped(words)}</text>`);
    },
    picture(width, height, ground, title) {
      return `<svg xmlns="http://www.w3.org/2000/svg" width="${n(width)}" height="${n(height)}" viewBox="0 0 ${n(width)} ${n(height)}" font-family="sans-serif" font-size="11"><title>${escaped(title)}</title><rect width="100%" height="100%" fill="${ground}"/>${parts.join("\n")}</svg>\n`;
    },
  };
}
