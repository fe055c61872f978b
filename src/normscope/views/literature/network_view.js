"use strict";
// The network that is seen: camera, selection, layout, and what the table's filter leaves.
function networkView(data, box, tell) {
  const n = data.radius.length, canvas = box.querySelector("canvas"), context = canvas.getContext("2d");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const net = {
    n, x: new Float64Array(n), y: new Float64Array(n), radius: data.radius, role: data.role, label: data.label, edges: data.edges,
    ticks: data.ticks, visible: new Uint8Array(n).fill(1), near: Array.from({ length: n }, () => new Set()),
    cites: Array.from({ length: n }, () => []), citedBy: Array.from({ length: n }, () => []),
    layout: "force", focus: -1, selected: -1, hovered: -1, cursor: -1, hurried: false,
  };
  for (let k = 0; k < data.edges.length; k += 2) {
    const a = data.edges[k], b = data.edges[k + 1];
    net.near[a].add(b); net.near[b].add(a);
    net.cites[a].push(b); net.citedBy[b].push(a);
  }
  net.byDegree = [...net.near.keys()].sort((a, b) => (net.role[b] === "this") - (net.role[a] === "this") || net.near[b].size - net.near[a].size || a - b);
  const picture = networkPicture(net), camera = { scale: 1, left: 0, top: 0 };
  let width = 0, height = 0, fitted = 1, follows = true, asked = false, moving = -1, layer = null, turn = 0;

  // -- drawing ---------------------------------------------------------------------

  function draw() {
    asked = false;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (moving >= 0) { // only the dragged work changes: the rest is painted once and copied
      layer = layer || rest(moving);
      context.drawImage(layer, 0, 0);
      context.scale(ratio(), ratio());
      picture.paintMoving(pen(context), camera, width, height);
    } else {
      context.scale(ratio(), ratio());
      picture.paint(pen(context), camera, width, height);
    }
    box.dataset.drawn = String(++turn);
    tell.drawn();
  }
  const ratio = () => devicePixelRatio || 1;
  function rest(i) { // everything but one work and its citations
    const still = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
    const target = still.getContext("2d"), before = net.focus;
    target.scale(ratio(), ratio());
    net.focus = i;
    picture.paint(pen(target), camera, width, height, i);
    net.focus = before;
    return still;
  }
  function pen(target) {
    return Object.assign(canvasPen(target), { family: getComputedStyle(document.body).fontFamily });
  }
  function redraw() {
    if (!asked) requestAnimationFrame(draw);
    asked = true;
  }
  function changed() {
    net.focus = moving >= 0 ? moving : net.selected >= 0 ? net.selected : net.hovered >= 0 ? net.hovered : net.cursor;
    redraw();
  }
  function measure() {
    [width, height] = [box.clientWidth, box.clientHeight];
    [canvas.width, canvas.height] = [Math.round(width * ratio()), Math.round(height * ratio())];
    if (follows) fit();
    redraw();
  }

  // -- camera ------------------------------------------------------------------------

  function bounds() {
    let [x1, y1, x2, y2] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = 0; i < n; i++) {
      if (!net.visible[i]) continue;
      x1 = Math.min(x1, net.x[i]); x2 = Math.max(x2, net.x[i]);
      y1 = Math.min(y1, net.y[i]); y2 = Math.max(y2, net.y[i]);
    }
    return x1 <= x2 ? [x1, y1, x2, y2] : [0, 0, 0, 0];
  }
  function fit() {
    const [x1, y1, x2, y2] = bounds(), top = net.layout === "years" ? 20 : 0, room = 34;
    const across = Math.max(width - 2 * room, 10), down = Math.max(height - 2 * room - top, 10);
    camera.scale = fitted = Math.min(across / Math.max(x2 - x1, 1), down / Math.max(y2 - y1, 1), 2);
    camera.left = width / 2 - camera.scale * (x1 + x2) / 2;
    camera.top = (height + top) / 2 - camera.scale * (y1 + y2) / 2;
    follows = true;
    redraw();
  }
  // With very many citations, only works are painted while the picture moves; the citations follow when it rests.
  function hurry() {
    if (net.edges.length < 30000) return;
    net.hurried = true;
    clearTimeout(hurry.timer);
    hurry.timer = setTimeout(() => { net.hurried = false; redraw(); }, 150);
  }
  function zoom(factor, x = width / 2, y = height / 2) {
    const wanted = Math.min(Math.max(camera.scale * factor, fitted / 3), Math.max(8, fitted * 4)), by = wanted / camera.scale;
    camera.left = x - (x - camera.left) * by;
    camera.top = y - (y - camera.top) * by;
    camera.scale = wanted;
    follows = false;
    hurry();
    redraw();
  }
  function pan(dx, dy) {
    camera.left += dx;
    camera.top += dy;
    follows = false;
    hurry();
    redraw();
  }
  function reveal(i) {
    const [x, y] = where(i), edge = 40;
    const into = (at, most) => (at < edge ? edge - at : at > most - edge ? most - edge - at : 0);
    const [dx, dy] = [into(x, width), into(y, height)];
    if (dx || dy) pan(dx, dy);
  }
  const where = (i) => [picture.column(i, camera), picture.row(i, camera)];

  // -- works ---------------------------------------------------------------------------

  function at(x, y, reach) {
    let best = -1, least = Infinity;
    for (let i = 0; i < n; i++) {
      if (!net.visible[i]) continue;
      const [px, py] = where(i), distance = Math.hypot(px - x, py - y) - picture.size(i, camera);
      if (distance < reach && distance < least) [best, least] = [i, distance];
    }
    return best;
  }
  function towards(i, dx, dy) { // the nearest work in a direction; what lies to the side counts as farther away
    const from = i >= 0 ? where(i) : [width / 2, height / 2];
    let best = -1, least = Infinity;
    for (let j = 0; j < n; j++) {
      if (j === i || !net.visible[j]) continue;
      const [x, y] = where(j), ahead = (x - from[0]) * dx + (y - from[1]) * dy, aside = Math.abs((x - from[0]) * dy) + Math.abs((y - from[1]) * dx);
      const cost = ahead + 2.5 * aside;
      if (ahead > 0.5 && cost < least) [best, least] = [j, cost];
    }
    return best;
  }
  function select(i, shown = true) {
    net.selected = i;
    if (i >= 0) net.cursor = i;
    if (i >= 0 && shown) reveal(i);
    changed();
    tell.selected(i);
  }
  function point(i) {
    if (net.hovered === i) return;
    net.hovered = i;
    changed();
    tell.pointed(i);
  }
  function go(i) {
    if (i < 0) return;
    net.cursor = i;
    reveal(i);
    changed();
    tell.reached(i);
  }
  function hold(i) { // paints the rest before the first step of a drag needs it
    layer = i < 0 ? null : rest(i);
  }
  function drag(i, dx, dy) {
    moving = i;
    tell.pointed(-1);
    net.x[i] += dx / camera.scale;
    net.y[i] += dy / camera.scale;
    changed();
  }
  function drop() {
    [moving, layer] = [-1, null];
    changed();
  }
  function show(visible) {
    net.visible = visible;
    for (const name of ["hovered", "cursor"]) if (net[name] >= 0 && !visible[net[name]]) net[name] = -1;
    changed();
  }

  // -- layouts ---------------------------------------------------------------------------

  function arrange(name, still = calm.matches) {
    const goal = data[name], x = net.x.slice(), y = net.y.slice(), began = performance.now(), mine = {};
    net.layout = name;
    arrange.last = mine;
    const step = (now) => {
      if (arrange.last !== mine) return;
      const part = still ? 1 : Math.min((now - began) / 450, 1), eased = 1 - (1 - part) ** 3;
      for (let i = 0; i < n; i++) {
        net.x[i] = x[i] + (goal[2 * i] - x[i]) * eased;
        net.y[i] = y[i] + (goal[2 * i + 1] - y[i]) * eased;
      }
      fit();
      hurry();
      if (part < 1) requestAnimationFrame(step);
    };
    step(still ? 0 : began);
  }

  // -- pictures to keep --------------------------------------------------------------------

  function svg(words, title) {
    const target = svgPen();
    picture.paint(target, camera, width, height);
    picture.legend(target, words, width, height + 30);
    return new Blob([target.picture(width, height + 30, picture.ground(), title)], { type: "image/svg+xml" });
  }
  function png(words) {
    const copy = document.createElement("canvas"), target = copy.getContext("2d");
    [copy.width, copy.height] = [2 * width, 2 * (height + 30)];
    target.scale(2, 2);
    target.fillStyle = picture.ground();
    target.fillRect(0, 0, width, height + 30);
    picture.paint(pen(target), camera, width, height);
    picture.legend(pen(target), words, width, height + 30);
    return new Promise((done) => copy.toBlob(done, "image/png"));
  }
  new ResizeObserver(() => { measure(); draw(); }).observe(box); // at once: paper has no next frame
  measure();
  arrange("force", true);
  return {
    net, camera, where, at, towards, zoom, pan, fit, select, point, go, hold, drag, drop, show, arrange, svg, png,
    size: (i) => picture.size(i, camera),
    atFit: () => camera.scale <= fitted * 1.001,
    recolour: () => { picture.readColours(); redraw(); },
  };
}
