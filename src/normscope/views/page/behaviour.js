"use strict";
(() => {
  const root = document.documentElement;
  const states = {};
  let { figures: specs, labels } = JSON.parse(packedFigures);

  window.redrawFigures = (where) => (where === "paper" ? drawForPaper() : redraw());

  // -- colours: "@name" is a variable of style.css, "@sequence:0.3" a place on a scale ------------

  const style = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const stops = (name) => style(name).split(/\s+/);
  const scale = (name) => stops(name).map((colour, i, all) => [i / (all.length - 1), colour]);

  function between(name, place) {
    const all = stops(name), at = place * (all.length - 1), i = Math.min(Math.floor(at), all.length - 2);
    const part = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
    const mix = [0, 1, 2].map((k) => Math.round(part(all[i], k) + (at - i) * (part(all[i + 1], k) - part(all[i], k))));
    return `rgb(${mix.join(",")})`;
  }
  function colour(token) {
    const [name, place] = token.slice(1).split(":");
    if (place !== undefined) return between(name, Number(place));
    return stops(name).length > 1 ? scale(name) : style(name);
  }
  function resolve(value) {
    if (typeof value === "string") return value[0] === "@" ? colour(value) : value;
    if (Array.isArray(value)) return typeof value.at(-1) === "number" ? value : value.map(resolve);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, TEXT.has(key) ? item : resolve(item)]));
  }
  // Text from files is never read as a colour.
  const TEXT = new Set(["x", "y", "text", "name", "customdata", "hovertemplate", "ticktext", "hovertext"]);

  // -- layout ------------------------------------------------------------------

  const paper = () => root.dataset.paper === "yes";
  const paperWidth = (plot) => (plot.closest(".panes") ? 320 : 650); // of a figure, in pixels, between the margins of A4
  const narrow = (plot) => (paper() ? paperWidth(plot) : plot.clientWidth) < 520;
  const axis = () => ({
    gridcolor: style("grid"), linecolor: style("rule"), tickcolor: style("rule"), zerolinecolor: style("rule"),
    zeroline: false, ticks: "outside", ticklen: 4, automargin: true, tickfont: { color: style("muted") },
    title: { font: { color: style("muted"), size: 13 }, standoff: 8 }, exponentformat: "power", minexponent: 5, separatethousands: true,
  });
  function base(plot, height) {
    const small = narrow(plot);
    return {
      ...(paper() ? { autosize: false, width: paperWidth(plot) } : { autosize: true, width: undefined }), height, margin: { l: small ? 44 : 56, r: small ? 8 : 14, t: 10, b: 42, pad: 2 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: small ? 12 : 13, color: style("ink") },
      hoverlabel: { bgcolor: style("panel"), bordercolor: style("rule"), font: { color: style("ink") }, align: "left" },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemwidth: 30, font: { color: style("ink") } },
      modebar: { bgcolor: style("panel"), color: style("muted"), activecolor: style("accent"), orientation: "h" },
      hovermode: "closest", dragmode: touch ? false : "zoom",
      xaxis: {}, yaxis: {},
    };
  }
  function merge(into, from) {
    for (const [key, item] of Object.entries(from)) {
      const both = item && into[key] && typeof item === "object" && !Array.isArray(item);
      into[key] = both ? merge({ ...into[key] }, item) : item;
    }
    return into;
  }
  function layoutOf(plot, spec) {
    const layout = merge(base(plot, spec.height), resolve(spec.layout || {}));
    for (const key of Object.keys(layout)) if (/^[xy]axis\d*$/.test(key)) layout[key] = merge(axis(), layout[key]);
    return layout;
  }

  // -- the step axis: plotly has no square-root axis, so x is transformed and the ticks are ours ----

  function ticks(low, high, wantedCount) {
    const found = new Set();
    for (let i = 0; i <= wantedCount; i++) {
      const root_ = Math.sqrt(low) + (i / wantedCount) * (Math.sqrt(high) - Math.sqrt(low));
      const step = root_ * root_, digit = 10 ** Math.floor(Math.log10(Math.max(step, 1)));
      const nice = [0, 1, 2, 3, 5, 7, 10].map((k) => k * digit);
      const best = nice.reduce((a, b) => (Math.abs(Math.sqrt(b) - root_) < Math.abs(Math.sqrt(a) - root_) ? b : a));
      if (best >= low && best <= high * 1.001) found.add(best);
    }
    return [...found];
  }
  const short = (step) =>
    step >= 1e6 ? `${+(step / 1e6).toPrecision(3)}M` : step >= 1e3 ? `${+(step / 1e3).toPrecision(3)}k` : String(step);
  function extent(traces) {
    let low = Infinity, high = 0;
    for (const trace of traces) for (const x of trace.x || []) { if (x < low) low = x; if (x > high) high = x; }
    return [Math.min(low, high), high];
  }
  function squareRoot(layout, low, high, plot) {
    const vals = ticks(low, high, narrow(plot) ? 4 : 7);
    merge(layout.xaxis, { tickmode: "array", tickvals: vals.map(Math.sqrt), ticktext: vals.map(short) });
  }
  function stepAxis(traces, layout, kind, plot, along) {
    const [low, high] = extent(traces), named = labels[(plot.closest("[data-stage]") || { dataset: {} }).dataset.stage] || {};
    for (const trace of traces) {
      if (!trace.x) continue;
      trace.customdata = trace.x;
      if (trace.hovertemplate) {
        trace.hovertext = trace.x.map((step) => (step in named ? ` (${named[step]})` : ""));
        trace.hovertemplate = trace.hovertemplate.replace("step %{customdata:,}", "step %{customdata:,}%{hovertext}");
      }
      if (kind === "sqrt") trace.x = trace.x.map((x) => Math.sqrt(Math.max(x, 0)));
    }
    const words = { linear: along, sqrt: `${along}, square-root scale`, log: `${along}, logarithmic scale` };
    layout.xaxis = merge(layout.xaxis, { type: kind === "log" ? "log" : "linear", tickformat: "~s" });
    layout.xaxis.title = { ...layout.xaxis.title, text: words[kind] };
    if (kind === "sqrt") squareRoot(layout, low, high, plot);
    if (kind === "log") layout.xaxis.dtick = high / Math.max(low, 1) > 30 ? 1 : undefined;
  }

  // -- drawing -----------------------------------------------------------------

  const touch = matchMedia("(pointer: coarse)").matches;
  const config = {
    responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover",
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d"]],
  };
  const shownTraces = (spec, set) => spec.traces.filter((trace) => !trace.set || !spec.buttons || trace.set === set);
  function picture(plot, spec, state) {
    const layout = layoutOf(plot, spec);
    let traces = shownTraces(spec, state.set).map((trace) => thinned(resolve(trace)));
    traces = traces.map(({ set, of, ...trace }) => trace);
    if (narrow(plot)) traces = traces.filter((trace) => trace.visible !== "legendonly"); // listed, they would fill the figure with legend
    const button = (spec.buttons || []).find((b) => b.key === state.set);
    if (button && button.axis) layout.yaxis.title = { ...layout.yaxis.title, text: button.axis };
    if (spec.step_axis) stepAxis(traces, layout, state.x, plot, button && button.along || "step");
    if (spec.log_y && state.y === "log") layout.yaxis.type = "log";
    return [traces, layout];
  }
  async function draw(figure) {
    const key = figure.dataset.figure, spec = specs[key], plot = figure.querySelector(":scope > .plot");
    if (spec.reader) return read(figure, spec);
    if (!plot) { if (!figure.detail) details(figure, spec); return; }
    states[key] = states[key] || { x: "linear", y: "linear", set: (spec.buttons && spec.buttons[0] || {}).key };
    const fresh = !plot.classList.contains("js-plotly-plot");
    await Plotly.react(plot, ...picture(plot, spec, states[key]), config);
    if (fresh) listen(plot);
    if (spec.details && !figure.detail) details(figure, spec);
  }
  function read(figure, spec) {
    figure.reader = figure.reader || headReader(figure.querySelector(".reader"), spec.reader, (place) => between("heat", place));
    figure.choose = figure.reader.choose;
    figure.reader.paint();
  }
  // The handlers ask which figure the plot is in now: a served page moves plots into new figures.
  function listen(plot) {
    const home = () => plot.closest("[data-figure]");
    plot.on("plotly_relayout", (change) => {
      const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]], key = home().dataset.figure;
      if (!specs[key].step_axis || states[key].x !== "sqrt" || from === undefined) return;
      const vals = ticks(Math.max(from, 0) ** 2, to ** 2, 6);
      Plotly.relayout(plot, { "xaxis.tickvals": vals.map(Math.sqrt), "xaxis.ticktext": vals.map(short) });
    });
    plot.on("plotly_click", (event) => {
      const figure = home(), near = figure.closest("[data-stage]") || document, { linked } = specs[figure.dataset.figure];
      const target = linked ? near.querySelector(`[data-figure$="${linked}"]`) : figure;
      if (target && target.choose) target.choose(String(event.points[0].customdata));
    });
  }
  const visible = () => [...document.querySelectorAll("[data-figure]")].filter((f) => f.offsetParent !== null);
  const onScreen = (figure) => figure.getBoundingClientRect().top < innerHeight;
  const idle = () => new Promise((done) => (window.requestIdleCallback ? requestIdleCallback(done, { timeout: 100 }) : setTimeout(done)));
  const watcher = new IntersectionObserver((seen) => {
    for (const entry of seen) if (entry.isIntersecting) paint(entry.target);
  }, { rootMargin: "400px" });
  let round = 0;
  async function paint(figure) {
    if (!figure.stale) return;
    figure.stale = false;
    await draw(figure);
    if (figure.detail) figure.detail();
  }
  // What is on the screen comes first, then what is scrolled to, then the rest while nothing else happens.
  async function redraw() {
    const mine = ++round, all = visible();
    delete document.body.dataset.drawn;
    for (const figure of all) figure.stale = true;
    const first = all.filter(onScreen);
    for (const figure of first.length ? first : all.slice(0, 1)) await paint(figure);
    if (document.querySelector("main[data-pending]")) return; // the page itself comes later (serving/follow.js)
    performance.mark("ready");
    for (const figure of all) watcher.observe(figure);
    for (const figure of all) {
      if (figure.stale) await idle();
      if (mine !== round) return;
      await paint(figure);
    }
    document.body.dataset.drawn = "yes";
    performance.mark("drawn");
  }
  // Printing does not wait for promises; plotly draws within the call.
  function drawForPaper() {
    round++;
    for (const figure of visible()) { figure.stale = false; draw(figure); if (figure.detail) figure.detail(); }
  }

  // -- what a click on a point shows ---------------------------------------------

  function details(figure, spec) {
    const panel = figure.querySelector(".detail"), select = panel.querySelector("select");
    for (const [key, item] of Object.entries(spec.details)) select.add(new Option(item.title, key));
    figure.detail = () => pane(panel, spec.details[select.value]);
    select.addEventListener("change", figure.detail);
    figure.choose = (key) => {
      if (!(key in spec.details)) return;
      select.value = key;
      figure.detail();
      panel.scrollIntoView({ block: "nearest" });
    };
    figure.detail();
  }
  async function pane(panel, item) {
    panel.querySelector("h4").textContent = item.says || "";
    const panes = panel.querySelector(".panes");
    while (panes.children.length > item.figures.length) { Plotly.purge(panes.lastChild.firstChild); panes.lastChild.remove(); }
    while (panes.children.length < item.figures.length) panes.append(emptyPane()); // all of them first: their number decides their width
    for (const [i, spec] of item.figures.entries()) {
      const part = panes.children[i], table = part.querySelector(".numbers"), what = plain(spec.layout.yaxis.title.text);
      Object.assign(part, { spec, said: `${item.title}: ${what}` });
      Object.assign(table.dataset, { title: part.said, key: part.said });
      for (const button of part.querySelectorAll(".files button")) {
        button.setAttribute("aria-label", `${button.dataset.image ? `Save as ${button.textContent}` : "Table"}: ${part.said}`);
        button.dataset.name = part.said;
      }
      if (!table.hidden) fillTable(table, spec);
      await Plotly.react(part.firstChild, ...picture(part.firstChild, spec, PANE), config);
    }
  }
  const PANE = { x: "linear", y: "linear" };
  function emptyPane() {
    const made = (kind, name, more = {}) => Object.assign(document.createElement(kind), { className: name, ...more });
    const button = (text) => made("button", "", { type: "button", textContent: text });
    const part = made("div", "pane"), files = made("div", "files"), table = made("div", "numbers", { hidden: true });
    const [numbers, svg, png] = ["Table", "SVG", "PNG"].map(button);
    numbers.dataset.numbers = "";
    numbers.setAttribute("aria-expanded", "false");
    [svg.dataset.image, png.dataset.image] = ["svg", "png"];
    files.append(numbers, svg, png);
    part.append(made("div", "plot"), files, table);
    return part;
  }

  // -- controls ----------------------------------------------------------------

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.csv) return saveTable(button);
    if (button.dataset.help) return disclose(button, document.getElementById(button.dataset.help));
    if ("numbers" in button.dataset) return numbers(button);
    if (button.dataset.image) return image(button);
    const which = ["set", "x", "y"].find((name) => button.dataset[name]);
    if (!which) return;
    const figure = button.closest("[data-figure]");
    states[figure.dataset.figure][which] = button.dataset[which];
    for (const other of button.parentElement.querySelectorAll("button")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    draw(figure);
    const shown = figure.querySelector(".numbers:not([hidden])");
    if (shown) fillTable(shown, specs[figure.dataset.figure], which === "set" ? button.dataset.set : states[figure.dataset.figure].set);
  });
  function disclose(button, part) {
    part.hidden = !part.hidden;
    button.setAttribute("aria-expanded", String(!part.hidden));
  }
  function numbers(button) {
    const pane = button.closest(".pane"), figure = button.closest("[data-figure]"), key = figure.dataset.figure;
    const part = (pane || figure).querySelector(":scope > .numbers");
    if (part.hidden) fillTable(part, pane ? pane.spec : specs[key], (states[key] || {}).set);
    disclose(button, part);
  }
  async function image(button) {
    const pane = button.closest(".pane");
    if (pane) return saveImage(button, pane.said, () => picture(pane.firstChild, pane.spec, PANE), style);
    const figure = button.closest("[data-figure]"), key = figure.dataset.figure, plot = figure.querySelector(":scope > .plot");
    return saveImage(button, figure.querySelector("h3").textContent, () => picture(plot, specs[key], states[key]), style);
  }
  function showStage(chosen) {
    for (const part of document.querySelectorAll("[data-stage]")) part.hidden = part.dataset.stage !== chosen;
    for (const part of document.querySelectorAll("[data-stage-links]")) part.hidden = part.dataset.stageLinks !== chosen;
  }
  document.addEventListener("change", (event) => {
    if (event.target.id !== "stage") return;
    showStage(event.target.value);
    redraw();
  });

  // -- a served page whose run file has changed (serving/follow.js) --------------------

  // Everything is replaced but what the reader has done: plots, chosen buttons, open parts, the stage.
  window.renewPage = (fresh) => {
    const page = new DOMParser().parseFromString(fresh.html, "text/html");
    const before = document.getElementById("content"), now = page.getElementById("content");
    const stage = document.getElementById("stage"), open = opened(before);
    for (const figure of now.querySelectorAll("[data-figure]")) {
      const same = before.querySelector(`[data-figure="${CSS.escape(figure.dataset.figure)}"]`);
      if (same) keepFigure(same, figure);
    }
    ({ figures: specs, labels } = fresh);
    before.replaceWith(now);
    document.querySelector("nav .links").replaceWith(page.querySelector("nav .links"));
    for (const selector of open) for (const part of now.querySelectorAll(selector)) part.click();
    if (stage && document.getElementById("stage")) showStage(document.getElementById("stage").value = stage.value);
    return redraw();
  };
  function keepFigure(before, now) {
    const [old, fresh] = [before, now].map((figure) => figure.querySelector(":scope > .plot"));
    if (old && fresh) fresh.replaceWith(old);
    const buttons = (figure) => [...figure.querySelectorAll(":scope > .tools .choice button")];
    const [past, present] = [buttons(before), buttons(now)];
    if (past.length !== present.length) return;
    present.forEach((button, i) => button.setAttribute("aria-pressed", past[i].getAttribute("aria-pressed")));
  }
  // Selectors of what opens again at a click: help, tables of numbers, folded tables.
  function opened(main) {
    const found = [...main.querySelectorAll("button[data-help][aria-expanded=true]")].map((b) => `button[data-help="${b.dataset.help}"]`);
    for (const button of main.querySelectorAll("button[data-numbers][aria-expanded=true]")) {
      found.push(`[data-figure="${CSS.escape(button.closest("[data-figure]").dataset.figure)}"] button[data-numbers]`);
    }
    for (const part of main.querySelectorAll("details[open]")) {
      const table = part.querySelector("table[data-name]");
      if (table) found.push(`details:has(table[data-name="${CSS.escape(table.dataset.name)}"]) > summary`);
    }
    return found;
  }

  let width = innerWidth;
  addEventListener("resize", () => {
    if ((width < 620) !== (innerWidth < 620)) redraw();
    width = innerWidth;
  });
  redraw();
})();
