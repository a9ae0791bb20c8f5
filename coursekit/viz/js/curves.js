// Training curves, while they grow and afterwards.
// data: {title, xlabel, ylabel, total, names: [..], series: [pack (n, 2) of step and value], live, running, note}

import {unpack, h, root} from "./shared.js";

const STYLE = `
.ck .plot { position:relative; touch-action:pan-y; }
.ck .note { min-height:1.4em; }
.ck .keys { display:flex; gap:14px; flex-wrap:wrap; font-size:13px; }
`;
const LINES = [["#0072B2", "#6db8ff"], ["#D55E00", "#ff9a52"], ["#009E73", "#4fd6ae"], ["#CC79A7", "#f0a8d0"],
  ["#B57700", "#f2cf5b"], ["#3D9BD8", "#9ad4f5"]];
const DASHES = [null, "7 4", "2 3", "9 3 2 3", "14 4", "4 2"];

const WIDE = 760; // of the drawing, at most

/** Round numbers from 0 to at most `high`, about `n`. */
function ticks(high, n = 4) {
  const rough = high / n;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((k) => k * power >= rough);
  return Array.from({length: Math.floor(high / step + 1e-9) + 1}, (_, i) => i * step);
}

export function mount(el, data, {emit}) {
  const box = root(el, STYLE, "Training curves", data.title);
  const note = h("p", {class: "note", "aria-live": "polite"});
  const title = h("strong");
  const plot = h("div", {class: "plot", tabindex: 0, role: "img"});
  const keys = h("div", {class: "keys"});
  const stop = h("button", {type: "button", onclick: () => {
    stop.disabled = true;
    stop.textContent = "Stopping…";
    emit({stop: true});
    el.parentElement?.closest("[tabindex]")?.focus(); // this button goes: the keyboard belongs to the notebook's cell again
  }}, "Stop training");
  const bar = h("div", {class: "row"}, stop);
  box.append(title, bar, plot, keys, note);
  let chosen = null; // index of the point that the cursor shows
  let place = (step) => step; // of a number of updates in the drawing
  let width = WIDE; // of the drawing

  function update(fresh) {
    data = fresh;
    data.points = data.series.map(unpack);
    title.textContent = data.title;
    bar.hidden = !data.live;
    if (data.live && !data.running) { stop.disabled = true; stop.textContent = "Training has ended"; }
    draw();
  }

  function draw() {
    const dark = box.hasAttribute("data-dark") ? 1 : 0;
    const [W, H, L, R, T, B] = [width, 260, 62, 14, 10, 40];
    const all = data.points.flatMap(({values}) => Array.from(values).filter((_, i) => i % 2));
    const svg = h("svg", {viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true"});
    const lasts = data.points.map(({values}, k) => values.length ? `${data.names[k]} ${values.at(-1).toFixed(4)} after ${values.at(-2)} updates` : "").filter(Boolean);
    plot.setAttribute("aria-label", `${data.ylabel}: ${lasts.join("; ") || "no point yet"}`);
    const total = data.total || Math.max(...data.points.flatMap(({values}) => values.at(-2) ?? 0), 1);
    const [across, up] = [ticks(total, Math.min(4, W / 150)), ticks(Math.max(...all, 0) || 1)];
    const high = Math.max(up.at(-1), ...all) * 1.03;
    const x = (step) => L + (W - L - R) * step / total;
    const y = (value) => H - B - (H - T - B) * value / high;
    for (const value of up) {
      svg.append(h("line", {x1: L, x2: W - R, y1: y(value), y2: y(value), stroke: "var(--line)", "stroke-width": value ? 0.6 : 1.2}));
      svg.append(h("text", {x: L - 6, y: y(value) + 4, "text-anchor": "end", "font-size": 12, class: "quiet"}, +value.toPrecision(6)));
    }
    for (const step of across) svg.append(h("text", {x: x(step), y: H - B + 17, "text-anchor": "middle", "font-size": 12, class: "quiet"}, step));
    svg.append(h("text", {x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle", "font-size": 13}, data.xlabel));
    svg.append(h("text", {x: 14, y: (T + H - B) / 2, "text-anchor": "middle", "font-size": 13, transform: `rotate(-90 14 ${(T + H - B) / 2})`}, data.ylabel));
    data.points.forEach(({values}, k) => {
      const points = [];
      for (let i = 0; i < values.length; i += 2) points.push(`${x(values[i]).toFixed(1)},${y(values[i + 1]).toFixed(1)}`);
      svg.append(h("polyline", {points: points.join(" "), fill: "none", stroke: LINES[k % 6][dark], "stroke-width": 2.2, "stroke-dasharray": DASHES[k % 6]}));
    });
    const first = data.points[0]?.values;
    if (chosen !== null && first?.length) {
      const i = Math.min(chosen, first.length / 2 - 1);
      svg.append(h("line", {x1: x(first[2 * i]), x2: x(first[2 * i]), y1: T, y2: H - B, stroke: "var(--soft)"}));
      const at = data.points.map(({values}, k) => { // of the other series, the point at that step if there is one
        for (let j = 0; j < values.length; j += 2) if (values[j] === first[2 * i]) return `${data.names[k]} ${values[j + 1].toFixed(4)}`;
        return "";
      }).filter(Boolean);
      note.textContent = `After ${first[2 * i]} updates: ${at.join(", ")}`;
    } else note.textContent = data.note ?? "";
    plot.replaceChildren(svg);
    keys.replaceChildren(...(data.names.length > 1 ? data.names.map((name, k) => h("span", {},
      h("svg", {viewBox: "0 0 30 8", style: "display:inline-block;width:30px;height:8px;margin-right:5px", "aria-hidden": "true"},
        h("line", {x1: 0, x2: 30, y1: 4, y2: 4, stroke: LINES[k % 6][dark], "stroke-width": 2.5, "stroke-dasharray": DASHES[k % 6]})), name)) : []));
    place = x;
  }

  const read = (/** @type {PointerEvent} */ event) => {
    const first = data.points[0]?.values;
    if (!first?.length) return;
    const box = plot.getBoundingClientRect();
    const px = (event.clientX - box.left) * width / box.width;
    let best = 0;
    for (let i = 0; i < first.length / 2; i++) if (Math.abs(place(first[2 * i]) - px) < Math.abs(place(first[2 * best]) - px)) best = i;
    chosen = best;
    draw();
  };
  for (const kind of ["pointerdown", "pointermove"]) plot.addEventListener(kind, read);
  plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") { chosen = null; draw(); } }); // a finger leaves when it is lifted
  plot.addEventListener("keydown", (event) => {
    const n = (data.points[0]?.values.length ?? 0) / 2;
    const go = {ArrowLeft: (chosen ?? n) - 1, ArrowRight: (chosen ?? -1) + 1, Home: 0, End: n - 1}[event.key];
    if (go === undefined || !n) return;
    event.preventDefault();
    event.stopPropagation();
    chosen = Math.max(0, Math.min(n - 1, go));
    draw();
  });
  update(data);
  new ResizeObserver(() => { // the curves are drawn to the width that there is
    const now = Math.min(WIDE, plot.clientWidth || WIDE);
    if (now === width) return;
    width = now;
    draw();
  }).observe(plot);
  return {update};
}
