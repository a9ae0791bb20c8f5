// Two sentences that differ in one place: how likely each candidate word is in both, as a scatter plot and as bars.
// data: {title, mask: "[MASK]", sentences: [[before, what differs, after] twice], words: [word], log: pack (2, n) of ln p,
//   planted: [[word, difference]], counts: [how many words can be shown], count}
// Words stand in the order of their likelihood, so that the first ones are the likeliest. difference = ln p second - ln p first.

import {unpack, num, h, field, root} from "./shared.js";

const STYLE = `
.ck { max-width:980px; }
.ck p { color:var(--ink); font-size:16px; min-height:2.9em; overflow-wrap:anywhere; }
.ck .error { min-height:0; color:var(--accent2); }
.ck .row button[aria-pressed=true] { border-color:var(--accent); color:var(--accent); font-weight:700; box-shadow:inset 0 0 0 1px var(--accent); }
.ck .row > span { color:var(--soft); }
.ck .tools { display:flex; flex-wrap:wrap; gap:0 22px; }
.ck .tools .typed input { width:16ch; }
.ck .said { display:grid; grid-template-columns:minmax(0, auto) auto; justify-content:start; gap:2px 14px; font-size:19px; line-height:1.5; margin:4px 0; }
.ck .said b { font-weight:700; }
.ck .said .first b, .ck .first { color:var(--accent); }
.ck .said .second b, .ck .second { color:var(--accent2); }
.ck .said .first, .ck .said .second { color:var(--ink); overflow-wrap:anywhere; }
.ck .said i { font-style:normal; font-weight:700; text-decoration:underline; text-underline-offset:3px; }
.ck .said .p { font-variant-numeric:tabular-nums; font-weight:700; text-align:right; min-width:6.2em; }
.ck .plot { cursor:crosshair; touch-action:pan-y; }
.ck .frame { fill:var(--field); }
.ck .dots { fill:none; stroke-linecap:round; }
.ck .halo { paint-order:stroke; stroke:var(--field); stroke-width:3.5px; stroke-linejoin:round; }
.ck text { unicode-bidi:plaintext; }
.ck .toFirst { fill:var(--accent); }
.ck .toSecond { fill:var(--accent2); }
.ck .heads { display:flex; justify-content:space-between; gap:12px; font-size:16px; font-weight:600; margin:6px 0 2px; }
.ck .key { display:flex; gap:6px 18px; flex-wrap:wrap; font-size:14px; color:var(--soft); margin-bottom:4px; }
.ck .key i { display:inline-block; width:26px; height:10px; margin-right:6px; }
.ck .bars { display:flex; flex-direction:column; gap:3px; max-height:720px; overflow:auto; padding:3px; }
.ck .bars button { display:grid; grid-template-columns:minmax(70px, 22%) 1fr 62px 62px; gap:8px; align-items:center; width:100%; min-height:28px; flex:none;
  text-align:left; font-size:16px; padding:2px 8px; }
.ck .bars.plain button { grid-template-columns:minmax(70px, 22%) 1fr 62px; }
.ck .bars button[aria-pressed=true] { border-color:var(--accent2); box-shadow:inset 0 0 0 1px var(--accent2); }
.ck .bars button[aria-pressed=true]:focus-visible { box-shadow:none; }
.ck .token { overflow:hidden; text-overflow:ellipsis; white-space:nowrap; unicode-bidi:plaintext; }
.ck .bar { position:relative; height:22px; background:linear-gradient(var(--soft), var(--soft)) 50% 0 / 1px 100% no-repeat; }
.ck .bar i { position:absolute; top:1px; height:20px; border-radius:2px; background:var(--accent); }
.ck .bar i.up { background:var(--accent2); }
.ck .bar i.half { height:12px; }
.ck .bar i.planted, .ck .key i.planted { background:repeating-linear-gradient(45deg, var(--soft) 0 2px, transparent 2px 5px); border:1px solid var(--soft); }
.ck .bar i.planted { top:14px; height:8px; }
.ck .key i.one { background:var(--accent); margin-right:2px; }
.ck .key i.two { background:var(--accent2); }
.ck .number { text-align:right; font-variant-numeric:tabular-nums; }
.ck .number.soft { color:var(--soft); }
.ck .gap { color:var(--soft); font-size:14px; text-align:center; }
@media (max-width:520px) {
  .ck p[aria-live] { min-height:5.8em; }
  .ck .said { font-size:17px; grid-template-columns:minmax(0, 1fr) auto; }
  .ck .bars button { grid-template-columns:minmax(60px, 26%) 1fr 50px 50px; font-size:15px; gap:5px; padding:2px 5px; }
  .ck .bars.plain button { grid-template-columns:minmax(60px, 28%) 1fr 52px; }
}
`;

const NEAR = 28; // how many pixels from a dot the pointer finds it
const MOST_COVERED = 3; // dots under the label of a word
const EACH_SIDE = 8; // rows of bars to each side
const MOST_PLANTED = 40;

const pen = document.createElement("canvas").getContext("2d");

/** The width of a text as it is drawn. */
function measure(value, size, weight = 400) {
  pen.font = `${weight} ${size}px system-ui, sans-serif`;
  return pen.measureText(value).width;
}

/** A probability with three digits that count: 0.120, 0.00432, 6.14·10⁻⁷. */
function chance(p) {
  if (p >= 0.0995) return num(p, 3);
  if (p >= 0.0000995) return num(p, 2 - Math.floor(Math.log10(p)));
  const [front, power] = p.toExponential(2).split("e");
  return `${front}·10${[...power].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("")}`;
}

const SIDES = [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [-1, -1], [1, 1], [-1, 1]]; // of a dot, the best for a label first

/**
 * Left and top of a box beside a dot.
 * @param {number[]} dot @param {number[]} to @param {number} wide @param {number} high @param {number} gap
 */
function beside([px, py], [right, down], wide, high, gap) {
  const away = right && down ? 0.6 * gap : gap;
  return [px + (right > 0 ? away : right < 0 ? -away - wide : -wide / 2), py + (down > 0 ? away : down < 0 ? -away - high : -high / 2)];
}

export function mount(el, data) {
  const box = root(el, STYLE, "Association", data.title);
  const title = h("strong");
  const said = h("div", {class: "said"});
  const views = h("div", {class: "row", role: "group", "aria-label": "View"},
    h("button", {type: "button", onclick: () => show("scatter")}, "Scatter plot"), h("button", {type: "button", onclick: () => show("bars")}, "Differences"));
  const counts = h("div", {class: "row", role: "group", "aria-label": "How many of the likeliest words"});
  const search = field("Find a word", "Find", "", find);
  const slider = h("input", {type: "range", min: 0, step: 1, "aria-label": "Word, by difference", style: "flex:1 1 160px", oninput: () => choose(order[slider.value])});
  const status = h("p", {"aria-live": "polite"});
  const error = h("p", {class: "error", role: "alert"});
  const body = h("div");
  box.append(title, said, h("div", {class: "tools"}, views, counts, search), error, status, body,
    h("div", {class: "row"}, h("label", {style: "display:contents"}, h("span", {}, "Word, by difference"), slider)));
  let first, second, n, planted, names;
  let order; // the words that are shown, from the one most likely with the first sentence to that with the second
  let view = "scatter", chosen = null, last = {text: "", at: -1};
  const diff = (i) => second[i] - first[i];
  const word = (i) => data.words[i];
  const signed = (value, digits) => (Number(value.toFixed(digits)) > 0 ? "+" : "") + num(value, digits);
  const whole = (count) => count.toLocaleString("en-US");
  const quoted = (text) => h("bdi", {}, `“${text}”`);

  function update(fresh) {
    data = fresh;
    const {shape: [, all], values} = unpack(data.log);
    [first, second] = [values.subarray(0, all), values.subarray(all)];
    planted = new Map(data.planted);
    names = data.sentences.map(([, part]) => part);
    title.textContent = data.title;
    counts.replaceChildren(h("span", {}, "Likeliest words:"), ...data.counts.map((count) => h("button", {type: "button", "data-count": count, onclick: () => take(count)},
      count === all ? `all ${whole(all)}` : whole(count))));
    chosen = null;
    take(data.count);
  }

  function take(count) {
    n = count;
    order = Array.from({length: n}, (_, i) => i).sort((i, j) => diff(i) - diff(j));
    slider.max = n - 1;
    if (chosen >= n) chosen = null;
    counts.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", Number(button.dataset.count) === n));
    show(view);
  }

  function show(which) {
    view = which;
    [...views.children].forEach((button, i) => button.setAttribute("aria-pressed", ["scatter", "bars"][i] === view));
    draw();
    tell(chosen);
  }

  function choose(i) {
    error.textContent = "";
    chosen = i;
    if (view === "scatter") mark(i);
    else draw();
    tell(i);
  }

  function tell(i) {
    said.replaceChildren(...data.sentences.flatMap(([before, part, after], k) => {
      const [left, right] = [[before, "before"], [after, "after"]].map(([text]) => filled(text, i));
      const ln = (k ? second : first)[i];
      const slot = data.sentences[k].some((text) => text.includes(data.mask)) || i === null ? null : [" ", h("i", {}, h("bdi", {}, word(i)))];
      return [h("div", {class: k ? "second" : "first"}, ...left, h("b", {}, h("bdi", {}, part)), ...right, ...(slot ?? [])),
        h("div", {class: "p", "aria-hidden": "true"}, i === null ? "" : `p = ${chance(Math.exp(ln))}`)];
    }));
    const at = i === null ? -1 : order.indexOf(i);
    slider.value = i === null ? Math.floor((n - 1) / 2) : at;
    if (i === null) {
      const [low, high] = [order[0], order.at(-1)];
      const hidden = [...planted.keys()].filter((j) => j >= n).length;
      const most = [...(diff(low) < 0 ? [["with ", quoted(names[0]), ": ", quoted(word(low)), ` ${signed(-diff(low), 2)}`]] : []),
        ...(diff(high) > 0 ? [["with ", quoted(names[1]), ": ", quoted(word(high)), ` ${signed(diff(high), 2)}`]] : [])];
      slider.setAttribute("aria-valuetext", "no word chosen");
      status.replaceChildren(`${n === data.words.length ? `All ${whole(n)}` : `The ${whole(n)} likeliest of ${whole(data.words.length)}`} words. `,
        ...(most.length ? ["Most gained in ln p ", ...most.flatMap((part, k) => [k ? "; " : "", ...part]), ". "] : []),
        hidden ? `${whole(hidden)} planted ${hidden === 1 ? "word is" : "words are"} less likely than these. ` : "", "Point at a word, or move the slider.");
      return;
    }
    const d = diff(i);
    const times = Math.exp(Math.abs(d));
    const ratio = times >= 1e4 ? "more than 10,000" : times >= 100 ? whole(Math.round(times)) : times.toFixed(times < 10 ? 2 : 1);
    const than = Math.abs(d) < 5e-4 ? ["as likely in both"] : [`${ratio} times as likely with `, quoted(names[d > 0 ? 1 : 0])];
    const truth = planted.has(i) ? ` Planted: ${signed(planted.get(i), 3)}.` : "";
    slider.setAttribute("aria-valuetext", `${word(i)}, ${signed(d, 3)}`);
    status.replaceChildren(quoted(word(i)), `: p = ${chance(Math.exp(first[i]))} with `, quoted(names[0]), `, ${chance(Math.exp(second[i]))} with `, quoted(names[1]),
      `. Difference of ln p: ${signed(d, 3)}, `, ...than, `.${truth}`);
  }

  /** A part of a sentence with the word in place of the mask. */
  function filled(text, i) {
    const [before, ...after] = text.split(data.mask);
    return after.length && i !== null ? [before, h("i", {}, h("bdi", {}, word(i))), after.join(data.mask)] : [text];
  }

  let plot; // what the pointer needs to know of the scatter plot
  let focusRow = false;

  function draw() {
    const here = body.contains(box.getRootNode().activeElement);
    body.replaceChildren(...(view === "scatter" ? [scatter()] : bars()));
    if (view === "scatter") mark(chosen);
    else {
      const row = body.querySelector("[aria-pressed=true]");
      if (here || focusRow) row?.focus({preventScroll: true});
      if (row) inSight(row);
    }
    focusRow = false;
  }

  function scatter() {
    const W = Math.max(280, Math.min(900, box.clientWidth || 760));
    const H = Math.max(330, Math.min(560, 0.64 * W));
    const [L, R, T, B] = [46, 8, 26, 44];
    const small = W < 520;
    const size = small ? 13 : 15;
    let [low, high] = [Infinity, -Infinity];
    for (let i = 0; i < n; i++) [low, high] = [Math.min(low, first[i], second[i]), Math.max(high, first[i], second[i])];
    const pad = 0.04 * (high - low) || 0.5;
    [low, high] = [low - pad, high + pad];
    const x = (value) => L + (W - L - R) * (value - low) / (high - low);
    const y = (value) => T + (H - T - B) * (high - value) / (high - low);
    const text = (px, py, value, more = {}) => h("text", {x: px, y: py, "font-size": 14, ...more}, value);
    const svg = h("svg", {viewBox: `0 0 ${W} ${H}`, class: "plot", role: "img",
      "aria-label": `Scatter plot of ${whole(n)} words: ln p with “${names[0]}” across, with “${names[1]}” upwards. The slider below goes through the words.`});
    svg.append(h("rect", {x: L, y: T, width: W - L - R, height: H - T - B, class: "frame"}));
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100].find((each) => (high - low) / each <= (small ? 5 : 8)) ?? 200;
    for (let k = Math.ceil(low / step); k * step <= high; k++) {
      const value = num(k * step, step < 1 ? 1 : 0);
      svg.append(h("line", {x1: x(k * step), x2: x(k * step), y1: T, y2: H - B, stroke: "var(--line)", "stroke-width": 0.7}),
        h("line", {x1: L, x2: W - R, y1: y(k * step), y2: y(k * step), stroke: "var(--line)", "stroke-width": 0.7}),
        text(x(k * step), H - B + 17, value, {"text-anchor": "middle", class: "quiet"}), text(L - 6, y(k * step) + 5, value, {"text-anchor": "end", class: "quiet"}));
    }
    svg.append(h("line", {x1: x(low), y1: y(low), x2: x(high), y2: y(high), stroke: "var(--soft)", "stroke-width": 1.5, "stroke-dasharray": "6 4", class: "diagonal"}));
    const axis = {"font-weight": 600, "font-size": size};
    svg.append(text(W - R, H - 6, `ln p with “${cut(names[0])}” →`, {...axis, "text-anchor": "end", class: "toFirst"}), text(2, 16, `↑ ln p with “${cut(names[1])}”`, {...axis, class: "toSecond"}));
    // one path for each side: thousands of dots are as fast as one, and follow the theme
    const wide = n <= 200 ? 7 : n <= 1000 ? 5 : 3.4;
    const dots = (keep) => Array.from({length: n}, (_, i) => (keep(i) ? `M${x(first[i]).toFixed(2)} ${y(second[i]).toFixed(2)}h0` : "")).join("");
    for (const [keep, color, kind] of [[(i) => diff(i) <= 0, "var(--accent)", "first"], [(i) => diff(i) > 0, "var(--accent2)", "second"]])
      svg.append(h("path", {d: dots(keep), class: `dots ${kind}`, stroke: color, "stroke-width": wide, "stroke-opacity": n <= 200 ? 0.85 : 0.6}));
    const marks = [...planted.keys()].filter((i) => i < n);
    for (const i of marks) svg.append(h("circle", {cx: x(first[i]), cy: y(second[i]), r: wide / 2 + 3, fill: "none", stroke: "var(--ink)", "stroke-width": 1.4, class: "ring"}));
    // labels: what was planted, then the most different words, as long as nothing overlaps
    const frame = [L, T, W - R, H - B];
    const points = Array.from({length: n}, (_, i) => [x(first[i]), y(second[i])]);
    const around = (/** @type {number[]} */ [u, v], r) => [u - r, v - r, u + r, v + r];
    const taken = marks.map((i) => around(points[i], wide / 2 + 3)); // [left, top, right, bottom] of what no label may cover
    if (marks.length) { // above the plot, where it cannot be taken for a word
      const legend = "= planted", left = W - R - measure(legend, size) - 8;
      svg.append(h("circle", {cx: left, cy: 11, r: wide / 2 + 3, fill: "none", stroke: "var(--ink)", "stroke-width": 1.4}), text(W - R, 16, legend, {class: "quiet", "text-anchor": "end"}));
    }
    const byDifference = [...order].sort((i, j) => Math.abs(diff(j)) - Math.abs(diff(i)));
    const labels = h("g", {class: "labels"});
    const spots = new Map(); // word -> the place of its label
    for (const i of [...new Set([...byPlanted(marks), ...byDifference.slice(0, small ? 14 : 30)])]) {
      const spot = place(cut(word(i)), points[i], planted.has(i) ? wide / 2 + 7 : 8, size, frame, taken, points, planted.has(i) ? Infinity : MOST_COVERED);
      if (!spot) continue;
      taken.push(spot.box, around(points[i], wide / 2));
      spots.set(i, spot);
      labels.append(text(spot.box[0], spot.box[1] + 0.95 * size, cut(word(i)), {"font-size": size, class: "halo label", "data-word": i}));
    }
    svg.append(labels);
    const over = h("g", {class: "over", "pointer-events": "none"});
    svg.append(over);
    plot = {y, size, frame, over, labels, spots, points, W, H};
    const nearest = (event) => {
      const {left, top, width} = svg.getBoundingClientRect();
      const [px, py] = [(event.clientX - left) * W / width, (event.clientY - top) * W / width];
      let [best, where] = [NEAR ** 2, null];
      for (let i = 0; i < n; i++) {
        const far = (points[i][0] - px) ** 2 + (points[i][1] - py) ** 2;
        if (far < best) [best, where] = [far, i];
      }
      return where;
    };
    let pointed = chosen;
    const point = (i) => {
      if (i === pointed) return; // what is said is not said again
      pointed = i;
      mark(i);
      tell(i);
    };
    svg.addEventListener("pointermove", (event) => point(nearest(event) ?? chosen));
    svg.addEventListener("pointerleave", () => point(chosen));
    svg.addEventListener("click", (event) => choose(pointed = nearest(event)));
    return svg;
  }

  const cut = (text) => (text.length > 24 ? `${text.slice(0, 23)}…` : text);

  const byPlanted = (list) => [...list].sort((i, j) => Math.abs(planted.get(j)) - Math.abs(planted.get(i)));

  /** Where a label beside a dot, `gap` away, covers the fewest dots and nothing that is taken: {to: its side, box: [left, top, right, bottom]}; null
   *  where it would cover more dots than `most`. */
  function place(label, dot, gap, size, /** @type {number[]} */ [left, top, right, bottom], taken, points, most) {
    const wide = measure(label, size);
    let [best, fewest] = [null, most + 1];
    for (const to of SIDES) {
      const [x, y] = beside(dot, to, wide, 1.25 * size, gap);
      const box = [x, y, x + wide, y + 1.25 * size];
      if (box[0] < left || box[2] > right || box[1] < top || box[3] > bottom) continue;
      if (!taken.every(([l, t, r, b]) => box[2] + 3 < l || box[0] - 3 > r || box[3] < t || box[1] > b)) continue;
      let covered = 0;
      for (const [u, v] of points) covered += Number(u > box[0] && u < box[2] && v > box[1] && v < box[3]);
      if (covered < fewest) [best, fewest] = [{to, box}, covered];
    }
    return best;
  }

  /** A ring and a name for the word that is pointed at or chosen. */
  function mark(i) {
    if (view !== "scatter") return;
    plot.over.replaceChildren();
    for (const label of plot.labels.children) label.setAttribute("visibility", Number(label.dataset.word) === i ? "hidden" : "visible");
    if (i === null) return;
    const [px, py] = plot.points[i];
    const size = plot.size + 2;
    const label = cut(word(i));
    const wide = measure(label, size, 700) + 12;
    const to = plot.spots.get(i)?.to ?? [px + 12 + wide > plot.frame[2] ? -1 : 1, 0]; // in place of its label, if it has one
    const [x, y] = beside([px, py], to, wide, size + 10, 11);
    const [left, top] = [Math.max(2, Math.min(plot.W - wide - 2, x)), Math.max(2, Math.min(plot.H - size - 12, y))];
    plot.over.append(h("line", {x1: px, y1: py, x2: px, y2: plot.y(first[i]), stroke: "var(--ink)", "stroke-width": 1.5}), // its height above the diagonal
      h("circle", {cx: px, cy: py, r: 7, fill: "none", stroke: "var(--ink)", "stroke-width": 2.5, class: "here", "data-word": i}),
      h("rect", {x: left, y: top, width: wide, height: size + 10, rx: 5, fill: "var(--field)", stroke: "var(--ink)"}),
      h("text", {x: left + 6, y: top + size + 2, "font-size": size, "font-weight": 700}, label));
  }

  function bars() {
    const marks = byPlanted(order.filter((i) => planted.has(i))).slice(0, MOST_PLANTED);
    const rows = new Set([...order.slice(0, EACH_SIDE), ...order.slice(-EACH_SIDE), ...marks, ...(chosen === null ? [] : [chosen])]);
    const listed = order.map((i, at) => [i, at]).filter(([i]) => rows.has(i));
    const most = Math.max(1e-9, ...listed.map(([i]) => Math.max(Math.abs(diff(i)), Math.abs(planted.get(i) ?? 0))));
    const any = listed.some(([i]) => planted.has(i));
    const bar = (value, kind) => h("i", {class: kind, style: `${value < 0 ? "right" : "left"}:50%;width:${50 * Math.abs(value) / most}%`, "data-value": value});
    const list = h("div", {class: `bars${any ? "" : " plain"}`, role: "group", "aria-label": "Words by difference"});
    listed.forEach(([i, at], k) => {
      const before = k ? listed[k - 1][1] : -1;
      if (at > before + 1) list.append(gap(at - before - 1));
      const truth = planted.get(i);
      const half = truth === undefined ? "" : " half";
      list.append(h("button", {type: "button", tabindex: (chosen === null ? k === 0 : i === chosen) ? 0 : -1, "aria-pressed": String(i === chosen), "data-word": i, title: `${word(i)}: ${signed(diff(i), 4)}`,
        onclick: () => select(i), onfocus: () => { if (i !== chosen) select(i); }, onpointerenter: () => tell(i), onpointerleave: () => tell(chosen)},
        h("span", {class: "token"}, word(i)), h("span", {class: "bar", "aria-hidden": "true"}, bar(diff(i), `${diff(i) > 0 ? "up" : "down"}${half}`), truth === undefined ? null : bar(truth, "planted")),
        h("span", {class: "number"}, signed(diff(i), 2)), any ? h("span", {class: "number soft"}, truth === undefined ? "" : signed(truth, 2)) : null));
    });
    const after = n - 1 - listed.at(-1)[1];
    if (after) list.append(gap(after));
    return [h("div", {class: "heads"}, h("span", {class: "first"}, "◀ likelier with ", h("bdi", {}, names[0])), h("span", {class: "second"}, "likelier with ", h("bdi", {}, names[1]), " ▶")),
      h("div", {class: "key"}, h("span", {}, h("i", {class: "one"}), h("i", {class: "two"}), "difference of ln p, in nats"), any ? h("span", {}, h("i", {class: "planted"}), "planted") : null), list];
  }

  function inSight(row) { // without moving the page
    const list = row.parentNode;
    const [inner, outer] = [row.getBoundingClientRect(), list.getBoundingClientRect()];
    if (inner.top < outer.top) list.scrollTop += inner.top - outer.top - 8;
    if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom + 8;
  }

  const gap = (count) => h("div", {class: "gap"}, `${whole(count)} more between`);

  function select(i) {
    focusRow = true;
    choose(i);
  }

  function find(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) { error.textContent = "Type the beginning of a word."; return; }
    const lower = data.words.map((each) => each.toLowerCase());
    const exact = lower.indexOf(wanted);
    const begins = lower.flatMap((each, i) => (each.startsWith(wanted) && i !== exact ? [i] : []));
    const found = [...(exact < 0 ? [] : [exact]), ...begins];
    if (!found.length) {
      error.replaceChildren("No word here begins with ", quoted(text.trim()), ".");
      return;
    }
    last = {text: wanted, at: last.text === wanted ? (last.at + 1) % found.length : 0}; // again: the next one
    const i = found[last.at];
    chosen = i;
    if (i >= n) take(data.counts.find((count) => i < count));
    choose(i);
    if (found.length > 1) status.append(` Word ${last.at + 1} of ${whole(found.length)} that begin with “${text.trim()}”.`);
  }

  box.addEventListener("keydown", (event) => {
    if (event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = {ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1, Home: -Infinity, End: Infinity}[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    const rows = [...body.querySelectorAll("button")];
    const at = rows.indexOf(event.target.closest("button"));
    if (at >= 0) rows[Math.max(0, Math.min(rows.length - 1, at + step))].focus();
    else choose(order[Math.max(0, Math.min(n - 1, (chosen === null ? (step > 0 ? -1 : n) : order.indexOf(chosen)) + step))]);
  });
  let width = 0;
  new ResizeObserver(() => { // the plot is drawn to the width that there is
    if (box.clientWidth === width) return;
    width = box.clientWidth;
    if (view === "scatter") draw();
  }).observe(box);
  update(data);
  return {update};
}
