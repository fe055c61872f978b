"use strict";
// Mouse, fingers and keys for the network.
function networkInput(view, box) {
  const fingers = new Map();
  let held = -1, travelled = 0, apart = 0;
  const place = (event) => {
    const frame = box.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };
  const reach = (event) => (event.pointerType === "touch" ? 14 : 4);
  const still = (event) => travelled < (event.pointerType === "touch" ? 8 : 4);

  box.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    box.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, place(event));
    if (fingers.size === 1) {
      [held, travelled] = [view.at(...place(event), reach(event)), 0];
      view.hold(held);
    } else [held, travelled, apart] = [-1, Infinity, spread()]; // two fingers zoom; lifting one of them selects nothing
    if (fingers.size === 2) view.drop();
  });
  box.addEventListener("pointermove", (event) => {
    const to = place(event), from = fingers.get(event.pointerId);
    if (!from) return event.pointerType !== "touch" && view.point(view.at(...to, reach(event)));
    const dx = to[0] - from[0], dy = to[1] - from[1];
    fingers.set(event.pointerId, to);
    travelled += Math.hypot(dx, dy);
    if (fingers.size === 2) return pinch(dx, dy);
    if (fingers.size > 2 || still(event)) return;
    box.dataset.dragging = "yes";
    if (held >= 0) view.drag(held, dx, dy);
    else view.pan(dx, dy);
  });
  function spread() {
    const [a, b] = [...fingers.values()];
    return Math.hypot(a[0] - b[0], a[1] - b[1]);
  }
  function pinch(dx, dy) {
    const [a, b] = [...fingers.values()], now = spread();
    view.pan(dx / 2, dy / 2);
    if (apart > 0 && now > 0) view.zoom(now / apart, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
    apart = now;
  }
  function lifted(event, meant) {
    if (!fingers.delete(event.pointerId)) return;
    if (meant && fingers.size === 0 && still(event)) view.select(held, false);
    if (held >= 0) view.drop();
    held = -1;
    delete box.dataset.dragging;
  }
  box.addEventListener("pointerup", (event) => lifted(event, true));
  box.addEventListener("pointercancel", (event) => lifted(event, false));
  box.addEventListener("pointerleave", () => fingers.size || view.point(-1));

  // One finger scrolls the page, unless it touches a work or the picture is enlarged.
  box.addEventListener("touchstart", (event) => {
    const touch = event.touches[0], on = view.at(...place(touch), 14);
    if (event.touches.length > 1 || on >= 0 || !view.atFit()) event.preventDefault();
  }, { passive: false });
  // The wheel zooms; at the smallest size it scrolls on, so that nobody is caught on the way down the page.
  box.addEventListener("wheel", (event) => {
    if (event.deltaY > 0 && view.atFit()) return;
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 20 : 1, factor = Math.exp(-Math.max(-240, Math.min(240, event.deltaY * lines)) / 400);
    view.zoom(factor, ...place(event));
    if (factor < 1 && view.atFit()) view.fit();
  }, { passive: false });

  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const first = () => view.net.byDegree.find((i) => view.net.visible[i]) ?? -1;
  const keys = {
    Enter: () => view.net.cursor >= 0 && view.select(view.net.cursor),
    " ": () => keys.Enter(),
    Escape: () => { view.net.cursor = -1; view.select(-1); },
    Home: () => view.go(first()),
    "+": () => view.zoom(1.3),
    "=": () => view.zoom(1.3),
    "-": () => view.zoom(1 / 1.3),
    0: () => view.fit(),
  };
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = arrows[event.key], key = keys[event.key];
    if (!arrow && !key) return;
    event.preventDefault();
    if (key) return key();
    const from = view.net.cursor;
    view.go(from < 0 ? first() : view.towards(from, ...arrow));
  });
}
