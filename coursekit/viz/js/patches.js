// Where a patch of an image, or the class token, looks: over the image for the chosen map, small ones of all to choose from.
// data: {title, image: address, size: [height, width], grid: [rows, columns], front: 1 with a class token or 0, layers, heads,
//   map, query, levels, weights: pack_bytes (M, T, T) of round(levels * weight / scale), scales: pack_bytes (M, T) of k, scale =
//   2^(-k / 16), outline?: SVG path in pixels, covered?: part of the image, shares?: pack_bytes (M, T) of round(255 * share),
//   live, typed, error}
// The M maps: of each layer its heads and, of several, their mean; at the end the rollout.

import {inflate, num, h, field, viridis, paint, heatColour, LEGEND, PICTURE, root, scaleOf} from "./shared.js";

const STYLE = `${PICTURE}${LEGEND}
.ck p[aria-live] { min-height:2.9em; color:var(--ink); font-size:16px; }
.ck .error { color:var(--accent2); }
.ck .sides { display:flex; gap:18px; flex-wrap:wrap; align-items:flex-start; }
.ck .large { flex:1 1 300px; min-width:0; max-width:380px; }
.ck .small { flex:0 1 auto; max-width:100%; min-width:0; }
.ck .row button[aria-pressed=true] { border-color:var(--accent2); box-shadow:inset 0 0 0 1px var(--accent2); }
.ck .class b { display:inline-block; margin-left:8px; padding:0 6px; border-radius:4px; font-weight:500; font-variant-numeric:tabular-nums; }
.ck .picture { cursor:crosshair; }
.ck .picture.heated img { filter:grayscale(1); }
.ck .picture canvas { opacity:.72; }
.ck .lines { stroke:#fff; stroke-opacity:.4; stroke-width:1; }
.ck .mark { stroke:#ff9a3c; stroke-width:3; }
.ck .key { stroke:#fff; stroke-width:2; stroke-dasharray:4 3; }
.ck .grid { display:grid; gap:2px; margin-top:4px; overflow-x:auto; padding:3px; justify-content:start; }
.ck .grid > span { color:var(--soft); font-size:11px; text-align:center; align-self:center; padding:0 2px; }
.ck .grid button { padding:0; min-width:0; min-height:0; border:2px solid transparent; border-radius:3px; background:none; line-height:0; }
.ck .grid button[aria-pressed=true] { border-color:var(--accent2); }
.ck .grid canvas { width:var(--side); height:calc(var(--side) / (var(--aspect))); image-rendering:pixelated; }
.ck .grid .all { grid-column:1 / -1; justify-self:start; display:flex; align-items:center; gap:8px; line-height:1.4; padding-right:8px; margin-top:4px; font-size:14px; }
.ck .grid .all canvas { --side:48px; }
`;

export function mount(el, data, {emit}) {
  if (!globalThis.DecompressionStream) return {update() {}}; // an old browser: the static picture stays
  let box, title, status, error, heat, first, picture, image, canvas, drawing, tag, legend, thumbs;
  let rows, columns, height, width, front, L, C, M, T, weights, scales, shares, fresh = 0;
  let map, query, held, key, heated = true; // held: the query stays, and what is pointed at is the key

  async function update(next) {
    const turn = ++fresh;
    const [all, steps, on] = await Promise.all([next.weights, next.scales, next.shares].map((packed) => packed && inflate(packed)));
    if (turn !== fresh) return; // something newer has come meanwhile
    data = next;
    ({shape: [M, T], values: weights} = all);
    scales = steps.values;
    shares = on?.values;
    [[rows, columns], [height, width], front, L] = [data.grid, data.size, data.front, data.layers];
    C = (M - 1) / L;
    if (!box) build();
    title.textContent = data.title;
    error.textContent = data.error ?? "";
    [map, query, held, key] = [data.map, data.query, false, null];
    box.style.setProperty("--aspect", `${width} / ${height}`);
    first.hidden = !front;
    image.src = data.image;
    image.classList.toggle("fine", width < 128);
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    grid();
    draw();
  }

  function build() {
    box = root(el, STYLE, "Patch attention", data.title);
    title = h("strong");
    status = h("p", {"aria-live": "polite"});
    error = h("p", {class: "error", role: "alert"});
    first = h("button", {type: "button", class: "class", onclick: () => hold(0), onfocus: () => point(0), onpointerenter: () => point(0), onpointerleave: leave});
    heat = h("button", {type: "button", onclick: () => { heated = !heated; look(); }}, "Heat map");
    image = h("img", {alt: ""});
    canvas = h("canvas", {"aria-hidden": "true"});
    drawing = h("svg", {"aria-hidden": "true", preserveAspectRatio: "none"});
    tag = h("span", {class: "tag", "aria-hidden": "true"});
    picture = h("div", {class: "picture", tabindex: 0, role: "group", "aria-label": "The image: arrow keys choose a patch, Enter holds it",
      onpointermove: (e) => point(under(e)), onclick: (e) => hold(under(e)), onpointerleave: leave}, image, canvas, drawing, tag);
    thumbs = h("div", {class: "grid", role: "group", "aria-label": "Layers and heads"});
    legend = h("p", {class: "legend"});
    box.append(...[title, data.live ? field("Image", "Show", data.typed ?? "", (source) => emit({source})) : null, error, status,
      h("div", {class: "sides"},
        h("div", {class: "large"}, h("div", {class: "row"}, first, heat), picture, legend),
        h("div", {class: "small"}, h("div", {class: "legend quiet"}, "Where the same token looks: layers ↓ heads →"), thumbs)),
      h("p", {class: "legend"}, "Click a patch, or press Enter, to hold it: then point at others for their weights. Click it again, or press Escape, to let it go.")].filter(Boolean));
    box.addEventListener("keydown", keys);
  }

  function grid() {
    const side = Math.max(18, Math.min(56, Math.floor(290 / Math.max(C, L * 0.8))));
    thumbs.style.cssText = `grid-template-columns:auto repeat(${C}, auto); --side:${side}px`;
    const button = (m, ...text) => h("button", {type: "button", class: m === M - 1 ? "all" : "", "aria-label": name(m), title: name(m), onclick: () => choose(m)}, h("canvas"), ...text);
    const cells = [h("span"), ...Array.from({length: C}, (_, j) => h("span", {}, j < data.heads ? j : "mean"))];
    for (let i = 0; i < L; i++) cells.push(h("span", {}, i), ...Array.from({length: C}, (_, j) => button(i * C + j)));
    thumbs.replaceChildren(...cells, button(M - 1, h("span", {}, "Rollout through all layers")));
  }

  const thumb = (m) => thumbs.querySelectorAll("button")[m];

  function name(m) {
    if (m === M - 1) return "Rollout";
    return `Layer ${Math.floor(m / C)}, ${m % C < data.heads ? `head ${m % C}` : "mean of heads"}`;
  }

  function token(t) {
    if (t < front) return "the class token";
    return `the patch in row ${Math.floor((t - front) / columns)}, column ${(t - front) % columns}`;
  }

  const scale = (m) => 2 ** (-scales[m * T + query] / 16);
  const row = (m) => weights.subarray((m * T + query) * T, (m * T + query + 1) * T);
  const weight = (s) => row(map)[s] * scale(map) / data.levels;

  function choose(m) {
    map = m;
    draw();
  }

  function draw() {
    thumbs.querySelectorAll("button").forEach((button, m) => {
      button.setAttribute("aria-pressed", m === map);
      button.tabIndex = m === map ? 0 : -1; // Tab reaches the maps once, the arrow keys move among them
    });
    look();
  }

  /** Which token is under the pointer. */
  function under({clientX, clientY}) {
    const box = picture.getBoundingClientRect();
    const cell = (x, n) => Math.max(0, Math.min(n - 1, Math.floor(x * n)));
    return front + cell((clientY - box.top) / box.height, rows) * columns + cell((clientX - box.left) / box.width, columns);
  }

  function point(t) {
    if (held) key = t;
    else query = t;
    look();
  }

  function hold(t) {
    [held, query, key] = [!(held && t === query), t, null];
    look();
  }

  function leave() {
    if (document.activeElement === first || key === null) return;
    key = null;
    look();
  }

  /** Colours of a map's patches, the largest of them lightest. */
  function shades(m) {
    const patches = row(m).subarray(front);
    const largest = patches.reduce((a, b) => Math.max(a, b), 0) || 1;
    return [patches, (q) => heatColour(q / largest)];
  }

  let painted = null; // of what the small maps are

  /** Show where the query looks, mark what is chosen and say it. */
  function look() {
    if (painted?.weights !== weights || painted.query !== query) {
      thumbs.querySelectorAll("canvas").forEach((small, m) => paint(small, [rows, columns], ...shades(m)));
      painted = {weights, query};
    }
    paint(canvas, [rows, columns], ...shades(map));
    canvas.hidden = !heated;
    picture.classList.toggle("heated", heated);
    heat.setAttribute("aria-pressed", heated);
    const [wide, tall] = [width / columns, height / rows];
    const lines = Array.from({length: columns - 1}, (_, i) => `M${(i + 1) * wide} 0v${height}`).join("")
      + Array.from({length: rows - 1}, (_, i) => `M0 ${(i + 1) * tall}h${width}`).join("");
    const around = (t, kind) => {
      if (t === null || t < front) return [];
      const at = {x: (t - front) % columns * wide, y: Math.floor((t - front) / columns) * tall, width: wide, height: tall};
      return [h("rect", {...at, class: "behind"}), h("rect", {...at, class: kind})];
    };
    drawing.replaceChildren(h("path", {d: lines, class: "lines"}),
      ...(data.outline ? [h("path", {d: data.outline, class: "behind"}), h("path", {d: data.outline, class: "outline"})] : []),
      ...around(query, "mark"), ...around(key, "key"));
    if (front) {
      const own = row(map).subarray(front).reduce((a, b) => Math.max(a, b), 0) || 1;
      const {fill, ink} = viridis(Math.sqrt(Math.min(1, row(map)[0] / own)));
      first.replaceChildren("class token", h("b", {style: `background:${fill};color:${ink}`}, num(weight(0), 3)));
      first.setAttribute("aria-pressed", query === 0);
    }
    label();
    const largest = Math.max(...row(map).subarray(front)) * scale(map) / data.levels;
    legend.replaceChildren("weight ", ...scaleOf("0", num(largest, 3), (x) => viridis(Math.sqrt(x))),
      ` (colour: its square root; exact to ±${(scale(map) / 2 / data.levels).toFixed(4)})`, data.outline ? "; the white line goes around the object" : "");
    tell();
  }

  /** The weight of the key, beside it. */
  function label() {
    tag.hidden = key === null || key < front;
    if (tag.hidden) return;
    tag.textContent = num(weight(key), 3);
    const [r, c] = [Math.floor((key - front) / columns), (key - front) % columns];
    const across = c < columns / 2 ? `left:${100 * c / columns}%` : `right:${100 * (columns - 1 - c) / columns}%`;
    tag.style.cssText = `${across};${r < rows / 2 ? `top:calc(${100 * (r + 1) / rows}% + 4px)` : `bottom:calc(${100 * (rows - r) / rows}% + 4px)`}`;
  }

  function tell() {
    const rolled = map === M - 1;
    const other = (s) => (s === query ? "itself" : token(s));
    if (key !== null) {
      status.textContent = `${name(map)}: ${token(query)} ${rolled ? "takes from" : "gives"} ${other(key)} the weight ${num(weight(key), 3)}.`;
      return;
    }
    const peak = row(map).indexOf(Math.max(...row(map)));
    const share = shares ? `; ${Math.round(shares[map * T + query] / 2.55)} % of its weight on patches lies on the object, which covers ${Math.round(100 * data.covered)} % of the image` : "";
    status.textContent = `${name(map)}: ${token(query)} ${rolled ? "takes most from" : "looks most at"} ${other(peak)}, weight ${num(weight(peak), 3)}${share}.`;
  }

  function keys(event) {
    if (event.target.type === "text" || event.ctrlKey || event.metaKey || event.altKey) return;
    const [down, right] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] ?? [];
    const holds = event.target === picture && (event.key === "Enter" || event.key === " ");
    const frees = held && event.key === "Escape";
    if (down === undefined && !holds && !frees) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    if (holds) hold(query);
    else if (frees) hold(query);
    else if (thumbs.contains(event.target)) {
      choose(beside(down, right));
      thumb(map).focus();
    } else point(next(held ? key ?? query : query, down, right));
  }

  /** The map beside the chosen one; the rollout stands beneath the last layer. */
  function beside(down, right) {
    if (map === M - 1) return down < 0 ? M - 1 - C : map;
    const [i, j] = [Math.floor(map / C) + down, map % C + right];
    return i === L ? M - 1 : Math.max(0, i) * C + Math.max(0, Math.min(C - 1, j));
  }

  /** The patch beside a token; from the class token, the first patch. */
  function next(t, down, right) {
    if (t < front) return front;
    const [r, c] = [Math.floor((t - front) / columns) + down, (t - front) % columns + right];
    return front + Math.max(0, Math.min(rows - 1, r)) * columns + Math.max(0, Math.min(columns - 1, c));
  }

  update(data);
  return {update};
}
