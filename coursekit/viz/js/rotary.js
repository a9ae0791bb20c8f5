// Rotary positions: a query and a key as arrows that turn with their positions, pair by pair, and their score.
// data: {title, q, k: pack (Dh,) before rotation, m, n: positions, bases: [number], base, ranges: [last position], range}

import {unpack, num, h, CONTROLS, words, knob, root} from "./shared.js";

const STYLE = `${CONTROLS}
.ck { --score:#00705a; }
.ck[data-dark] { --score:#52d3aa; }
.ck p { color:var(--ink); font-size:17px; }
.ck .knob { flex:none; max-width:none; font-size:17px; min-height:32px; }
.ck .knob > svg { flex:none; width:34px; }
.ck .knob span { min-width:9.2em; white-space:nowrap; }
.ck .knob output { min-width:7.2em; font-weight:600; }
.ck .top { display:flex; flex-wrap:wrap; gap:0 26px; font-size:17px; }
.ck .top > div { display:flex; flex-wrap:wrap; gap:0 8px; align-items:center; }
.ck .choices button { font-variant-numeric:tabular-nums; }
.ck .dials { display:grid; grid-template-columns:repeat(var(--columns), minmax(0, 200px)); gap:12px 16px; justify-content:space-between; margin:8px 0; }
.ck figure { margin:0; min-width:0; }
.ck figcaption { font-size:15px; line-height:1.3; color:var(--soft); text-align:center; }
.ck figcaption b { font-size:17px; color:var(--ink); font-weight:600; }
.ck .dial { padding:4px 10px; }
.ck .dial path, .ck .dial circle { vector-effect:non-scaling-stroke; }
.ck .query { stroke:var(--accent); fill:var(--accent); }
.ck .key { stroke:var(--accent2); fill:var(--accent2); }
.ck .query line { stroke-width:7; }
.ck .key line { stroke-width:4; stroke-dasharray:9 5; } /* thinner, so that an arrow below it can be seen */
.ck .between { fill:var(--score); opacity:.35; }
.ck .cosine { font-size:15px; text-align:center; color:var(--soft); font-variant-numeric:tabular-nums; }
.ck .product { display:grid; grid-template-columns:1fr auto; gap:8px; align-items:center; font-size:18px; font-weight:600; }
.ck .product .number { min-width:2.7em; text-align:right; font-variant-numeric:tabular-nums; }
.ck .track { position:relative; height:18px; background:var(--field); border:1px solid var(--line); border-radius:3px; }
.ck .track i { position:absolute; top:2px; bottom:2px; background:var(--score); }
.ck .track .zero { top:-3px; bottom:-3px; left:50%; margin-left:-1px; border-left:2px solid var(--ink); background:none; }
.ck .sum { display:flex; flex-wrap:wrap; gap:0 26px; align-items:baseline; font-size:19px; margin:6px 0; font-variant-numeric:tabular-nums; }
.ck .sum b { color:var(--score); font-size:24px; }
.ck p[aria-live] { min-height:1.45em; }
.ck .heading { font-size:15px; color:var(--soft); }
@media (max-width:520px) {
  .ck .dials { grid-template-columns:repeat(min(2, var(--columns)), minmax(0, 200px)); }
  .ck .knob { flex-wrap:wrap; gap:0 8px; } .ck .knob > svg { width:20px; } .ck .knob span { flex:1; } .ck .dial { padding:4px; }
  .ck .knob input { order:1; flex-basis:100%; } /* below its name: a finger needs the width */
  .ck .knob, .ck .top, .ck .sum { font-size:16px; }
}
`;

const grouped = (value) => value.toLocaleString("en", {maximumFractionDigits: 20}).replace("-", "−");
const three = (value) => grouped(value < 100 ? Number(value.toPrecision(3)) : Math.round(value));
const digits = (value) => num(value, Math.abs(value) < 99.5 ? 2 : 0);
const R = 92; // of a dial, in units of its drawing

export function mount(el, data) {
  const box = root(el, STYLE, "Rotary", data.title);
  const title = h("strong");
  const status = h("p", {"aria-live": "polite"});
  const arrow = (kind) => h("g", {class: kind}, h("line"), h("path", {stroke: "none"}));
  const sample = (kind) => {
    const made = arrow(kind);
    draw(made, 32, 0);
    return h("svg", {viewBox: "0 -8 34 16", "aria-hidden": "true"}, kind ? made : null);
  };
  const sliders = {
    m: knob("Query position m", 0, 1, (value) => `m = ${grouped(value)}`, (value) => move({m: value})),
    n: knob("Key position n", 0, 1, (value) => `n = ${grouped(value)}`, (value) => move({n: value})),
    both: knob("Shift both", 0, 1, () => `m − n = ${grouped(m - n)}`, (value) => shift(value - Math.min(m, n))),
  };
  sliders.m.label.prepend(sample("query"));
  sliders.n.label.prepend(sample("key"));
  sliders.both.label.prepend(sample(""));
  const top = h("div", {class: "top"});
  const dials = h("div", {class: "dials"});
  const [terms, total] = [h("span"), h("b", {class: "number"})];
  const divided = h("span");
  const sum = h("div", {class: "sum"}, terms, h("span", {}, divided, total));
  const heading = h("div", {class: "heading"}, "Score at each distance m − n");
  const plot = h("div", {class: "plot"});
  box.append(title, top, sliders.m.label, sliders.n.label, sliders.both.label, dials, sum, status, heading, plot);

  let Dh, pairs, q, k, m, n, base, last, theta, bases, ranges, marks, width, x, y; // x, y: from distance and score to the plot

  function update(fresh) {
    data = fresh;
    [q, k] = [data.q, data.k].map((packed) => Array.from(unpack(packed).values));
    Dh = q.length;
    pairs = Dh / 2;
    [m, n] = [data.m, data.n];
    title.textContent = data.title;
    bases = words("Base", data.bases.map(grouped), (i) => { base = i; rescale(`With base ${grouped(data.bases[i])}, query`); });
    ranges = words("Positions up to", data.ranges.map(grouped), (i) => { last = i; [m, n] = [m, n].map((at) => Math.min(at, data.ranges[i])); rescale(); });
    top.replaceChildren(h("div", {}, "Base", bases.group), h("div", {}, "Positions up to", ranges.group));
    dials.style.setProperty("--columns", `${pairs <= 4 ? pairs : Math.ceil(pairs / 2)}`);
    const reach = Math.max(...lengths(q), ...lengths(k)) || 1;
    const most = Math.max(...lengths(q).map((length, i) => length * lengths(k)[i])) || 1;
    marks = Array.from({length: pairs}, (_, i) => {
      const mark = {reach, most, speed: h("span"), query: arrow("query"), key: arrow("key"), between: h("path", {class: "between"}),
        fill: h("i"), cosine: h("div", {class: "cosine"}), number: h("span", {class: "number"})};
      mark.svg = h("svg", {viewBox: "-100 -100 200 200", role: "img"}, h("circle", {r: R, fill: "none", stroke: "var(--line)", "stroke-width": 1.5}),
        h("path", {d: `M${-R} 0H${R}M0 ${-R}V${R}`, fill: "none", stroke: "var(--line)"}), mark.between, mark.query, mark.key);
      mark.figure = h("figure", {}, h("figcaption", {}, h("b", {}, `pair ${i}`), `: entries ${i}, ${i + pairs}`, h("br"), mark.speed), h("div", {class: "dial"}, mark.svg),
        mark.cosine, h("div", {class: "product"}, h("div", {class: "track", "aria-hidden": "true"}, mark.fill, h("i", {class: "zero"})), mark.number));
      return mark;
    });
    dials.replaceChildren(...marks.map((mark) => mark.figure));
    [base, last] = [data.base, data.range];
    rescale();
  }

  /** The length of the arrow of each pair. */
  const lengths = (vector) => vector.slice(0, pairs).map((a, i) => Math.hypot(a, vector[i + pairs]));
  /** A pair of a vector, turned by an angle. */
  function turned(vector, i, angle) {
    const [a, b, cos, sin] = [vector[i], vector[i + pairs], Math.cos(angle), Math.sin(angle)];
    return [a * cos - b * sin, a * sin + b * cos];
  }
  const anglesOf = (powers) => Array.from({length: pairs}, (_, i) => powers ** (-2 * i / Dh));
  /** q · k / sqrt(Dh) of a query `distance` positions after the key. */
  const scoreAt = (distance, angles = theta) => angles.reduce((total, one, i) => {
    const [a, b] = turned(q, i, distance * one);
    return total + a * k[i] + b * k[i + pairs];
  }, 0) / Math.sqrt(Dh);

  /** An arrow from the middle of a drawing to a place, with a head. */
  function draw(group, toX, toY) {
    const length = Math.hypot(toX, toY);
    const [line, head] = group.children;
    group.setAttribute("visibility", length < 0.5 ? "hidden" : "visible");
    if (length < 0.5) return;
    const [ux, uy, size] = [toX / length, toY / length, Math.min(group.classList.contains("key") ? 16 : 22, length)];
    const at = (along, across) => `${(ux * along - uy * across).toFixed(3)} ${(uy * along + ux * across).toFixed(3)}`;
    const [x2, y2] = at(length - size * 0.8, 0).split(" ");
    for (const [key, value] of Object.entries({x1: 0, y1: 0, x2, y2})) line.setAttribute(key, value);
    head.setAttribute("d", `M${at(length, 0)}L${at(length - size, size * 0.5)}L${at(length - size, -size * 0.5)}Z`);
  }

  function move(to) {
    ({m, n} = {m, n, ...to});
    show(said());
  }

  function shift(by) {
    [m, n] = [m + by, n + by];
    show(`Both shifted to m = ${grouped(m)}, n = ${grouped(n)}: the distance is still ${grouped(m - n)}, the score still ${digits(scoreAt(m - n))}.`);
  }

  const said = (query = "Query") => `${query} at position ${grouped(m)} and key at ${grouped(n)}: distance ${grouped(m - n)}, score ${digits(scoreAt(m - n))}.`;

  /** Another base or range: the curve is drawn anew. */
  function rescale(query) {
    theta = anglesOf(data.bases[base]);
    bases.show(base);
    ranges.show(last);
    marks.forEach(({speed}, i) => speed.replaceChildren(`θ = ${three(theta[i])}`, h("br"), `wavelength ${three(2 * Math.PI / theta[i])}`));
    curve();
    show(said(query));
  }

  function show(text) {
    const most = data.ranges[last];
    sliders.m.show(m, most);
    sliders.n.show(n, most);
    sliders.both.show(Math.min(m, n), most - Math.abs(m - n));
    const products = marks.map((mark, i) => {
      const [a, b] = [turned(q, i, m * theta[i]), turned(k, i, n * theta[i])];
      const [from, to] = [Math.atan2(b[1], b[0]), Math.atan2(a[1], a[0])];
      const angle = Math.atan2(Math.sin(to - from), Math.cos(to - from)); // from the key to the query, -pi to pi
      const size = R / mark.reach;
      draw(mark.query, size * a[0], -size * a[1]);
      draw(mark.key, size * b[0], -size * b[1]);
      const [here, there] = [Math.hypot(...a), Math.hypot(...b)];
      mark.svg.append(...(here < there * (1 - 1e-6) ? [mark.key, mark.query] : [mark.query, mark.key])); // the shorter one lies above
      const r = 0.45 * size * Math.min(here, there);
      mark.between.setAttribute("d", r > 0 ? `M0 0L${r * Math.cos(from)} ${-r * Math.sin(from)}A${r} ${r} 0 0 ${angle > 0 ? 0 : 1} ${r * Math.cos(to)} ${-r * Math.sin(to)}Z` : "");
      const degrees = (radians) => Math.round(radians * 180 / Math.PI);
      const around = (radians) => (degrees(radians) + 360) % 360;
      mark.svg.setAttribute("aria-label", `pair ${i}: the query points to ${around(to)}°, the key to ${around(from)}°`);
      mark.cosine.textContent = `${digits(here)} × ${digits(there)} × cos ${Math.abs(degrees(angle))}°`;
      const product = a[0] * b[0] + a[1] * b[1];
      mark.number.textContent = digits(product);
      mark.number.title = `${product}`;
      const share = 50 * product / mark.most;
      mark.fill.style.cssText = `left:${Math.min(50, 50 + share)}%;width:${Math.abs(share)}%`;
      return product;
    });
    const all = products.reduce((sum, one) => sum + one, 0);
    const score = all / Math.sqrt(Dh);
    const written = products.map((one, i) => (i === 0 ? digits(one) : digits(one).startsWith("−") ? ` − ${digits(one).slice(1)}` : ` + ${digits(one)}`));
    terms.textContent = `q·k = ${written.join("")}${pairs > 1 ? ` = ${digits(all)}` : ""}`;
    divided.textContent = `score q·k / √${Dh} = `;
    total.textContent = digits(score);
    total.title = `${score}`;
    point(score);
    status.textContent = text;
  }

  /** The score over all distances, with its axes. */
  function curve() {
    const far = data.ranges[last];
    const steps = far <= 64 ? 4 : far <= 512 ? 2 : 1; // points from one distance to the next
    const at = Array.from({length: 2 * far * steps + 1}, (_, i) => i / steps - far);
    const values = at.map((distance) => scoreAt(distance));
    // one scale for all bases, so that they can be compared
    const range = (some) => some.reduce(([a, b], one) => [Math.min(a, one), Math.max(b, one)], [0, 0]);
    const [low, high] = range(data.bases.flatMap((one) => range(at.map((distance) => scoreAt(distance, anglesOf(one))))));
    width = box.clientWidth;
    const [W, H, L, R, T, B] = [Math.max(280, Math.min(760, width || 760)), 174, 52, 20, 28, 24];
    x = (distance) => L + (W - L - R) * (distance / far + 1) / 2;
    y = (value) => T + (H - T - B) * (high > low ? (high - value) / (high - low) : 0.5);
    const text = (px, py, value, anchor) => h("text", {x: px, y: py, "text-anchor": anchor, "font-size": 14, class: "quiet"}, value);
    const svg = h("svg", {viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true"});
    for (const level of new Set([low, 0, high])) {
      const near = level && Math.abs(y(level) - y(0)) < 15; // its number would cover that of 0
      svg.append(h("line", {x1: L, x2: W - R, y1: y(level), y2: y(level), stroke: "var(--line)"}));
      if (!near) svg.append(text(L - 6, y(level) + 5, level === 0 ? "0" : digits(level), "end"));
    }
    for (const share of [-1, -0.5, 0, 0.5, 1]) svg.append(h("line", {x1: x(share * far), x2: x(share * far), y1: H - B, y2: H - B + 4, stroke: "var(--soft)"}),
      text(x(share * far), H - 5, grouped(share * far), Math.abs(share) === 1 && W < 400 ? (share < 0 ? "start" : "end") : "middle"));
    svg.append(h("polyline", {points: at.map((distance, i) => `${x(distance).toFixed(3)},${y(values[i]).toFixed(3)}`).join(" "), fill: "none", stroke: "var(--score)",
      "stroke-width": far <= 64 ? 2.4 : far <= 512 ? 1.4 : 0.8, "stroke-linejoin": "round"}));
    svg.append(h("line", {class: "here", y1: T - 8, y2: H - B, stroke: "var(--ink)", "stroke-dasharray": "4 3"}),
      h("circle", {class: "here", r: 8, fill: "var(--score)", stroke: "var(--ink)", "stroke-width": 2.5}), h("text", {class: "here", y: T - 13, "font-size": 15, "font-weight": 600}));
    plot.replaceChildren(svg);
  }

  /** Mark the present distance on the curve. */
  function point(score) {
    const [line, circle, label] = plot.querySelectorAll(".here");
    const at = x(m - n);
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
    circle.setAttribute("cx", at);
    circle.setAttribute("cy", y(score));
    label.textContent = `m − n = ${grouped(m - n)}: ${digits(score)}`;
    const end = x(data.ranges[last]);
    label.setAttribute("x", at);
    label.setAttribute("text-anchor", at < 90 ? "start" : at > end - 90 ? "end" : "middle");
  }

  update(data);
  new ResizeObserver(() => { // the curve is drawn to the width that there is
    if (box.clientWidth === width) return;
    curve();
    point(scoreAt(m - n));
  }).observe(box);
  return {update};
}
