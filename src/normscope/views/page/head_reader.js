"use strict";
// The reader's view of attention heads: every head as a small map, one head large, token by token.
// `data` is written by views/figures/network/head_reader.py; `heat(0…1)` is a colour of the theme.
const headReader = (home, data, heat) => {
  const KINDS = ["soft", "saturated"], STEPS = 254, NOT_FINITE = 255;
  const heads = data.heads, places = new Map(heads.map((head, i) => [head.key, i]));
  const state = { kind: "soft", head: places.get(data.first) ?? 0, token: null, shown: null, key: null };

  const make = (tag, name = "", text = "") => {
    const found = document.createElement(tag);
    if (name) found.className = name;
    if (text) found.textContent = text;
    return found;
  };
  const weights = (head, kind) => { // bytes in steps of 1/254, unpacked when first looked at
    head.maps = head.maps || {};
    head.maps[kind] = head.maps[kind] || Uint8Array.from(atob(head[kind]), (c) => c.charCodeAt(0));
    return head.maps[kind];
  };
  const sentence = (head) => data.sentences[head.sentence];
  const row = (head, kind, query) => {
    const wide = sentence(head).keys.length;
    return weights(head, kind).subarray(query * wide, (query + 1) * wide);
  };
  const finite = (bytes) => bytes.some((b) => b !== 0 && b !== NOT_FINITE);
  const said = (byte) => (byte === NOT_FINITE ? "not finite" : (byte / STEPS).toFixed(2));

  // -- colours -------------------------------------------------------------------

  let table = [];
  function mix() {
    table = Array.from({ length: STEPS + 1 }, (_, i) => heat(Math.sqrt(i / STEPS)).match(/\d+/g).map(Number));
  }
  const shade = (byte) => table[byte];
  // Black or white, whichever has more contrast: one of them always has 4.5 to 1.
  const linear = (v) => (v / 255 <= 0.04045 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const ink = ([r, g, b]) => (0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) > 0.179 ? "#000" : "#fff");

  function pixels(canvas, head, kind) { // one pixel per weight; what is not finite stays transparent
    const { queries, keys } = sentence(head), bytes = weights(head, kind);
    canvas.width = keys.length;
    canvas.height = queries.length;
    const image = new ImageData(keys.length, queries.length);
    bytes.forEach((byte, i) => {
      if (byte !== NOT_FINITE) image.data.set([...shade(byte), 255], 4 * i);
    });
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  // -- every head, small -----------------------------------------------------------

  const tools = home.appendChild(make("div", "tools"));
  const choice = tools.appendChild(make("div", "choice"));
  choice.setAttribute("role", "group");
  choice.setAttribute("aria-label", "Attention in the small maps");
  const switches = KINDS.map((kind) => {
    const button = choice.appendChild(make("button", "", kind));
    button.type = "button";
    button.dataset.kind = kind;
    button.addEventListener("click", () => { state.kind = kind; multiples(); });
    return button;
  });
  const legend = tools.appendChild(make("p", "types"));
  for (const [type, count] of data.types) {
    const entry = legend.appendChild(make("span"));
    entry.append(make("span", `key type-${type}`), ` ${count} ${type}`);
  }
  const sides = home.appendChild(make("div", "sides"));
  const scroll = sides.appendChild(make("div", "multiples"));
  const grid = scroll.appendChild(make("div", "tiles"));
  grid.setAttribute("role", "grid");
  grid.setAttribute("aria-label", "All heads: rows are layers, columns are heads. The arrow keys choose a head.");
  grid.style.setProperty("--columns", data.columns);
  grid.style.setProperty("--tile", `${Math.round(Math.min(Math.max(640 / data.rows.length, 26), 44))}px`);
  const tiles = [];
  const at = new Map(heads.map((head, i) => [head.row * data.columns + head.column, i]));
  data.rows.forEach((name, r) => {
    const line = grid.appendChild(make("div", "line"));
    line.setAttribute("role", "row");
    const header = line.appendChild(make("span", "name"));
    header.appendChild(make("bdi", "", name));
    header.setAttribute("role", "rowheader");
    header.title = name;
    for (let c = 0; c < data.columns; c++) {
      const i = at.get(r * data.columns + c);
      line.appendChild(i === undefined ? blank() : tile(i));
    }
  });
  function blank() {
    const found = make("span");
    found.setAttribute("role", "gridcell");
    return found;
  }
  function tile(i) {
    const button = make("button", `tile type-${heads[i].type}`);
    button.type = "button";
    button.tabIndex = -1;
    button.setAttribute("role", "gridcell");
    button.setAttribute("aria-label", heads[i].says);
    button.title = heads[i].says;
    button.dataset.head = heads[i].key;
    button.appendChild(make("canvas")).setAttribute("aria-hidden", "true");
    tiles[i] = button;
    return button;
  }
  grid.addEventListener("click", (event) => {
    const button = event.target.closest(".tile");
    if (button) { pick(places.get(button.dataset.head)); near(); }
  });
  const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  grid.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    let { row: r, column: c } = heads[state.head], next;
    do {
      [r, c] = [r + move[0], c + move[1]];
      if (r < 0 || c < 0 || r >= data.rows.length || c >= data.columns) return;
      next = at.get(r * data.columns + c);
    } while (next === undefined);
    pick(next);
    tiles[next].focus();
  });
  function multiples() {
    switches.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.kind === state.kind)));
    heads.forEach((head, i) => {
      if (head.soft) pixels(tiles[i].firstChild, head, state.kind);
      else tiles[i].classList.add("unrecorded");
    });
  }

  // -- one head, large ---------------------------------------------------------------

  const large = sides.appendChild(make("div", "large"));
  const label = large.appendChild(make("label", "", "Head "));
  const select = label.appendChild(make("select"));
  heads.forEach((head) => select.add(new Option(head.says, head.key)));
  select.addEventListener("change", () => pick(places.get(select.value)));
  const title = large.appendChild(make("h4"));
  const module = large.appendChild(make("p", "note module"));
  const facts = large.appendChild(make("dl", "measures"));
  const attends = large.appendChild(make("div", "attends"));
  const hint = large.appendChild(make("p", "note", "Hover or tap a token to see where it attends."));
  const tokens = large.appendChild(make("div", "tokens"));
  tokens.setAttribute("role", "group");
  tokens.setAttribute("aria-label", "The sentence: choose the token that attends");
  const summary = large.appendChild(make("p", "answer"));
  summary.setAttribute("aria-live", "polite");
  const pair = large.appendChild(make("div", "pair"));
  const panes = KINDS.map((kind) => {
    const pane = pair.appendChild(make("div", "pane"));
    pane.appendChild(make("h5", "", `${kind} attention`));
    const keys = pane.appendChild(make("div", "keys"));
    keys.setAttribute("role", "list");
    const canvas = pane.appendChild(make("canvas", "matrix"));
    canvas.setAttribute("role", "img");
    canvas.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") show(...cell(canvas, event)); });
    canvas.addEventListener("pointerleave", () => show(state.token));
    canvas.addEventListener("click", (event) => {
      const [query, key] = cell(canvas, event);
      state.token = query;
      show(query, key);
    });
    return { kind, keys, canvas };
  });

  function pick(i) {
    if (i === undefined) return;
    const before = heads[state.head];
    tiles[state.head].removeAttribute("aria-selected");
    tiles[state.head].tabIndex = -1;
    state.head = i;
    const head = heads[i];
    tiles[i].setAttribute("aria-selected", "true");
    tiles[i].tabIndex = 0;
    reveal(tiles[i]);
    select.value = head.key;
    title.replaceChildren(make("span", `key type-${head.type}`), head.says);
    module.textContent = head.module;
    facts.replaceChildren(...head.facts.map(([name, value]) => {
      const line = make("div");
      line.append(make("dt", "", name), make("dd", "", value));
      return line;
    }));
    attends.replaceChildren(...head.attends.map(([kind, text]) => {
      const line = make("p");
      line.append(make("b", "", `${kind}: `), text);
      return line;
    }));
    pair.hidden = tokens.hidden = !head.soft;
    hint.textContent = head.soft
      ? "Hover or tap a token to see where it attends."
      : "No attention map was recorded for this head.";
    summary.textContent = "";
    if (head.soft) lay(head, before);
  }
  function reveal(tile_) { // a wide grid scrolls sideways; the page itself stays where it is
    const box = scroll.getBoundingClientRect(), place = tile_.getBoundingClientRect();
    const margin = 2 * place.width;
    if (place.left < box.left + margin) scroll.scrollLeft += place.left - box.left - margin;
    if (place.right > box.right) scroll.scrollLeft += place.right - box.right + margin;
  }
  function lay(head, before) { // the sentence, as text
    const { queries, keys } = sentence(head);
    if (!tokens.children.length || head.sentence !== before.sentence) {
      tokens.replaceChildren(...queries.map((word, i) => {
        const button = make("button", "token", word);
        button.type = "button";
        button.dataset.query = i;
        return button;
      }));
      for (const pane of panes) {
        pane.keys.replaceChildren(...keys.map((word) => {
          const item = make("span", "weight");
          item.setAttribute("role", "listitem");
          item.append(make("span", "", word), make("small"));
          return item;
        }));
      }
      state.token = null;
    }
    state.token = state.token ?? Math.floor((queries.length * 2) / 3);
    show(state.token);
  }
  const query = (event) => {
    const button = event.target.closest(".token");
    return button ? Number(button.dataset.query) : null;
  };
  tokens.addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse" && query(event) !== null) show(query(event));
  });
  tokens.addEventListener("pointerleave", () => show(state.token));
  tokens.addEventListener("click", (event) => {
    if (query(event) !== null) show((state.token = query(event)));
  });
  tokens.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = tokens.children[state.token + (step || 0)];
    if (!step || !next) return;
    event.preventDefault();
    show((state.token += step));
    next.focus();
  });

  function show(token, key = null) {
    const head = heads[state.head];
    if (token === null || !head.soft) return;
    [...tokens.children].forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === token));
      button.tabIndex = i === state.token ? 0 : -1;
    });
    const { queries, keys } = sentence(head);
    for (const pane of panes) {
      const bytes = row(head, pane.kind, token);
      [...pane.keys.children].forEach((item, i) => {
        const ground = bytes[i] === NOT_FINITE ? null : shade(bytes[i]);
        const seen = ground && bytes[i] / STEPS >= 0.005;
        item.style.background = seen ? `rgb(${ground})` : "";
        item.style.color = seen ? ink(ground) : "";
        item.lastChild.textContent = seen || bytes[i] === NOT_FINITE ? said(bytes[i]) : "";
        item.classList.toggle("chosen", i === key);
      });
      matrix(pane, head, token, key);
    }
    summary.replaceChildren(make("b", "", `${queries[token]} → `), key === null
      ? KINDS.map((kind) => `${kind}: ${largest(head, kind, token)}`).join(" · ")
      : `${keys[key]}: ${KINDS.map((kind) => `${kind} ${said(row(head, kind, token)[key])}`).join(", ")}`);
  }
  function largest(head, kind, token) {
    const bytes = row(head, kind, token), { keys } = sentence(head);
    if (!finite(bytes)) return "no finite weights";
    const order = [...bytes.keys()].filter((i) => bytes[i] !== NOT_FINITE).sort((a, b) => bytes[b] - bytes[a]);
    const tied = order.filter((i) => bytes[i] === bytes[order[0]]).length;
    if (tied > 3) return `${tied} tokens with ${said(bytes[order[0]])} each`;
    return order.slice(0, 3).filter((i) => bytes[i] / STEPS >= 0.005).map((i) => `${keys[i]} ${said(bytes[i])}`).join(", ");
  }

  // -- the whole matrix ----------------------------------------------------------------

  const NAMES = 64; // pixels for the names of the queries
  function matrix({ kind, canvas }, head, token, key) {
    const { queries, keys } = sentence(head), wide = canvas.parentElement.clientWidth;
    if (!wide) return;
    const side = Math.max(Math.min((wide - NAMES - 2) / keys.length, 16), 2), sharp = devicePixelRatio || 1;
    const [width, height] = [NAMES + side * keys.length + 2, side * queries.length + 2];
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.side = side;
    const map = make("canvas"), pen = canvas.getContext("2d"), style = getComputedStyle(canvas);
    pixels(map, head, kind);
    pen.scale(sharp, sharp);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(map, NAMES, 1, side * keys.length, side * queries.length);
    pen.fillStyle = style.color;
    pen.font = `${Math.min(side, 11)}px ${style.fontFamily}`;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    if (side >= 7) queries.forEach((word, i) => {
      const short = word.length > 10 ? `${word.slice(0, 9)}…` : word;
      pen.fillText(short, NAMES - 5, 1 + side * (i + 0.5), NAMES - 6);
    });
    pen.strokeStyle = style.borderTopColor;
    pen.strokeRect(NAMES - 0.5, 0.5, side * keys.length + 1, side * queries.length + 1);
    pen.strokeStyle = style.outlineColor;
    pen.lineWidth = 2;
    pen.strokeRect(NAMES, 1 + side * token, side * keys.length, side);
    if (key !== null) pen.strokeRect(NAMES + side * key, 1 + side * token, side, side);
    canvas.setAttribute("aria-label", `${kind} attention of ${head.says}: rows attend to columns`);
  }
  function cell(canvas, event) {
    const box = canvas.getBoundingClientRect(), { queries, keys } = sentence(heads[state.head]);
    const place = (pixels_, most) => Math.min(Math.max(Math.floor(pixels_ / canvas.side), 0), most - 1);
    const inside = event.clientX - box.left >= NAMES;
    return [place(event.clientY - box.top - 1, queries.length), inside ? place(event.clientX - box.left - NAMES, keys.length) : null];
  }

  // -- what the page calls ---------------------------------------------------------------

  const near = () => large.scrollIntoView({ block: "nearest" });
  addEventListener("resize", () => show(state.token));
  return {
    paint() {
      mix();
      multiples();
      pick(state.head);
    },
    choose(key) {
      if (!places.has(key)) return;
      pick(places.get(key));
      near();
    },
  };
};
