// Position codes: all entries, one position's row, and how alike it is to the others.
// data: {title, names: [name], codes: [pack (T, D)], cosine: [bool], which, position}

import {unpack, num, h, viridis, paint, root} from "./shared.js";

const STYLE = `
.ck { max-width:1500px; }
.ck .row { max-width:760px; }
.ck .sides { display:flex; flex-wrap:wrap; gap:0 28px; align-items:center; } /* on a slide the curves stand beside the maps */
.ck .sides > * { max-width:760px; min-width:0; }
.ck .whole { flex:1 1 560px; }
.ck .curves { flex:1 1 340px; }
.ck p { color:var(--ink); font-size:16px; min-height:2.9em; }
.ck .row button[aria-pressed=true] { border-color:var(--accent); color:var(--accent); font-weight:700; box-shadow:inset 0 0 0 1px var(--accent); }
.ck .maps { display:flex; gap:20px; flex-wrap:wrap; padding:0 5px; } /* room for the marks at the edges */
.ck figure { margin:0; flex:1 1 300px; min-width:0; max-width:360px; }
.ck figcaption { color:var(--soft); font-size:14px; margin-bottom:2px; }
.ck .map { position:relative; }
.ck .map canvas { width:100%; height:250px; image-rendering:pixelated; display:block; cursor:crosshair; }
.ck .map i { position:absolute; pointer-events:none; }
.ck .map i.line { left:-4px; right:-4px; border:2px solid #fff; outline:2px solid var(--accent2); }
.ck .map i.column { top:-2px; bottom:-2px; border:1px solid #fff; outline:1px solid var(--accent2); }
.ck .strip { display:flex; gap:1px; margin:6px 0 2px; overflow-x:auto; }
.ck .strip span { flex:1 0 9px; height:34px; line-height:34px; text-align:center; font-size:13px; overflow:hidden; font-variant-numeric:tabular-nums; cursor:pointer; }
.ck .strip span.here { outline:2px solid var(--accent2); outline-offset:-2px; }
.ck .label { color:var(--soft); font-size:14px; }
`;

export function mount(el, data) {
  const box = root(el, STYLE, "Position codes", data.title);
  const title = h("strong");
  const status = h("p", {"aria-live": "polite"});
  const names = h("div", {class: "row", role: "group", "aria-label": "Code"});
  const slider = h("input", {type: "range", min: 0, step: 1, "aria-label": "Position", style: "flex:1 1 200px", oninput: () => show(Number(slider.value), entry)});
  const at = h("span");
  const [entries, alike] = [h("canvas", {"aria-hidden": "true"}), h("canvas", {"aria-hidden": "true"})];
  const marks = {entries: [h("i", {class: "line"}), h("i", {class: "column"})], alike: [h("i", {class: "line"})]};
  const [entriesCaption, alikeCaption] = [h("figcaption"), h("figcaption")];
  const stripLabel = h("div", {class: "label"});
  const strip = h("div", {class: "strip", tabindex: 0, role: "group", "aria-label": "Entries of the position"});
  const [likeness, wave] = [h("div"), h("div")];
  const maps = h("div", {class: "maps"},
    h("figure", {}, entriesCaption, h("div", {class: "map"}, entries, ...marks.entries)),
    h("figure", {}, alikeCaption, h("div", {class: "map"}, alike, ...marks.alike)));
  const curves = h("div", {class: "curves"}, likeness, wave);
  box.append(title, names, h("div", {class: "row"}, h("label", {style: "display:contents"}, "Position ", slider), at), status,
    h("div", {class: "sides"}, h("div", {class: "whole"}, maps, stripLabel, strip), curves));
  let T, D, code, matrix, low, high, span, which, position = 0, entry = 0;

  function update(fresh) {
    data = fresh;
    title.textContent = data.title;
    names.replaceChildren(...data.names.map((name, i) => h("button", {type: "button", onclick: () => choose(i)}, name)));
    position = data.position;
    choose(data.which);
  }

  const range = (values) => values.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);
  const short = (value) => num(value, Math.abs(value) >= 99.5 ? 0 : 2);

  function choose(i) {
    which = i;
    ({shape: [T, D], values: code} = unpack(data.codes[i]));
    [low, high] = range(code);
    const row = (t) => code.subarray(t * D, (t + 1) * D);
    const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);
    const length = Array.from({length: T}, (_, t) => (data.cosine[i] ? Math.sqrt(dot(row(t), row(t))) : 1));
    matrix = new Float64Array(T * T);
    for (let t = 0; t < T; t++) for (let u = 0; u <= t; u++) matrix[t * T + u] = matrix[u * T + t] = dot(row(t), row(u)) / length[t] / length[u];
    span = range(matrix);
    const scale = ([a, b]) => (x) => viridis(b > a ? (x - a) / (b - a) : 0.5).rgb;
    paint(entries, [T, D], code, scale([low, high]));
    paint(alike, [T, T], matrix, scale(span));
    entriesCaption.textContent = `entries: positions ↓, ${D} ${D === 1 ? "entry" : "entries"} →; dark ${short(low)} to light ${short(high)}`;
    alikeCaption.textContent = `${kind()} of any two positions; dark ${short(span[0])} to light ${short(span[1])}`;
    [...names.children].forEach((button, k) => button.setAttribute("aria-pressed", k === i));
    slider.max = T - 1;
    show(position, entry);
  }

  const kind = () => (data.cosine[which] ? "cosine" : "dot product");

  function show(t, d) {
    position = Math.max(0, Math.min(T - 1, t));
    entry = Math.max(0, Math.min(D - 1, d));
    slider.value = position;
    at.textContent = `${position} of 0 to ${T - 1}`;
    for (const [line] of Object.values(marks)) line.style.cssText = `top:calc(${100 * (position + 0.5) / T}% - 4px);height:8px`;
    const wide = Math.max(100 / D, 1.5);
    marks.entries[1].style.cssText = `left:${100 * (entry + 0.5) / D - wide / 2}%;width:${wide}%`;
    const row = Array.from(code.subarray(position * D, (position + 1) * D));
    stripLabel.textContent = `the row of position ${position}` + (D > 16 ? " (colours as above)" : "");
    strip.replaceChildren(...row.map((value, k) => {
      const {fill, ink} = viridis(high > low ? (value - low) / (high - low) : 0.5);
      return h("span", {class: k === entry ? "here" : "", style: `background:${fill};color:${ink}`, title: `entry ${k}: ${num(value, 3)}`, "data-value": value,
        onclick: () => show(position, k)}, D <= 16 ? short(value) : null);
    }));
    const near = Array.from(matrix.subarray(position * T, (position + 1) * T));
    likeness.replaceChildren(h("div", {class: "label"}, `${kind()} with position ${position}`), plot(near, span, position));
    const along = Array.from({length: T}, (_, u) => code[u * D + entry]);
    wave.replaceChildren(h("div", {class: "label"}, `entry ${entry} of every position`), plot(along, [low, high], position, "var(--accent2)"));
    const others = near.map((x, u) => (u === position ? -Infinity : x));
    const best = others.indexOf(Math.max(...others));
    status.textContent = `${data.names[which]}: entry ${entry} of position ${position} is ${num(row[entry], 3)}.`
      + (Math.max(...others) > Math.min(...near) ? ` Most alike is position ${best}, ${kind()} ${num(near[best], 3)}.` : "");
  }

  /** A curve over the positions, with its range on the left and the chosen position marked. */
  function plot(values, [from, to], mark, color = "var(--accent)") {
    const [W, H, L, R, B] = [Math.max(280, Math.min(740, curves.clientWidth || 740)), 132, 56, 10, 20];
    const x = (u) => L + (W - L - R) * (T > 1 ? u / (T - 1) : 0.5);
    const y = (value) => 8 + (H - B - 16) * (to > from ? (to - value) / (to - from) : 0.5);
    const text = (px, py, value, anchor) => h("text", {x: px, y: py, "text-anchor": anchor, "font-size": 13, class: "quiet"}, value);
    const levels = from < 0 && to > 0 ? [from, 0, to] : [from, to];
    const svg = h("svg", {viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true"});
    for (const level of levels) svg.append(h("line", {x1: L, x2: W - R, y1: y(level), y2: y(level), stroke: "var(--line)"}), text(L - 6, y(level) + 4, short(level), "end"));
    svg.append(h("line", {x1: x(mark), x2: x(mark), y1: 2, y2: H - B, stroke: "var(--soft)", "stroke-dasharray": "4 3"}));
    svg.append(h("polyline", {points: values.map((value, u) => `${x(u).toFixed(2)},${y(value).toFixed(3)}`).join(" "), fill: "none", stroke: color, "stroke-width": 2.4, "stroke-linejoin": "round"}));
    svg.append(h("circle", {cx: x(mark), cy: y(values[mark]), r: 5, fill: color}));
    svg.append(text(x(0), H - 4, "0", "middle"), text(x(T - 1), H - 4, T - 1, "middle"), text((L + W - R) / 2, H - 4, "position", "middle"));
    return svg;
  }

  for (const [canvas, columns] of [[entries, () => D], [alike, () => null]]) canvas.addEventListener("click", (event) => {
    const {left, top, width, height} = canvas.getBoundingClientRect();
    const t = Math.floor((event.clientY - top) / height * T);
    show(t, columns() ? Math.floor((event.clientX - left) / width * columns()) : entry);
  });
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const onSlider = event.target === slider;
    const go = {ArrowUp: [onSlider ? 1 : -1, 0], ArrowDown: [onSlider ? -1 : 1, 0], ArrowLeft: onSlider ? [-1, 0] : [0, -1], ArrowRight: onSlider ? [1, 0] : [0, 1]}[event.key];
    if (!go) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    show(position + go[0], entry + go[1]);
  });
  new ResizeObserver(() => show(position, entry)).observe(box); // the curves are drawn to the width that there is
  update(data);
  return {update};
}
