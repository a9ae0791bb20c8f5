// Forecasts of a series by several models, from a cut that is dragged along it.
// data: {title, unit, names: [of models], best: index of the one that is no model | null, cuts: [index], start: which cut is first,
//   history, offset: index of the first value, values: pack (n), labels: [n texts] | null, forecasts: [pack (K, horizon)],
//   bands: [pack (K, horizon, 2) | null], errors, inside: [{each: pack (K), all} | null], extents: [[low, high] | null] of the
//   values and of each model, digits}

// as in plots.py and curves.js

import {unpack, num, h, CONTROLS, knob, root} from "./shared.js";

const STYLE = `${CONTROLS}
.ck { --model0:#0072b2; --model1:#d55e00; --model2:#009e73; --model3:#cc79a7; --model4:#b57700; --model5:#3D9BD8; }
.ck[data-dark] { --model0:#6db8ff; --model1:#ff9a52; --model2:#4fd6ae; --model3:#f0a8d0; --model4:#f2cf5b; --model5:#9ad4f5; }
.ck p[aria-live] { min-height:2.9em; margin-top:8px; color:var(--ink); font-size:16px; overflow-wrap:anywhere; }
.ck strong { overflow-wrap:anywhere; }
.ck .keys { display:flex; flex-wrap:wrap; gap:6px; align-items:center; margin:6px 0; }
.ck .keys button, .ck .keys span { display:flex; align-items:center; gap:7px; text-align:left; overflow-wrap:anywhere; }
.ck .keys span { padding:0 6px; color:var(--soft); }
.ck .keys button[aria-pressed=false] { background:none; border-style:dashed; color:var(--soft); text-decoration:line-through; }
.ck .keys button[aria-pressed=false] svg { visibility:hidden; }
.ck svg.sample { display:inline-block; flex:none; width:30px; height:12px; vertical-align:-1px; }
.ck .plot { position:relative; cursor:ew-resize; touch-action:pan-y; user-select:none; -webkit-user-select:none; }
.ck .plot path { fill:none; stroke-linecap:round; stroke-linejoin:round; }
.ck .plot text { font-size:12px; font-variant-numeric:tabular-nums; }
.ck .band { fill-opacity:.16; stroke-opacity:.5; }
.ck .known { stroke:var(--ink); stroke-width:2; }
.ck .came { stroke:var(--soft); stroke-width:4; opacity:.5; }
.ck .far { stroke:var(--line); stroke-width:1.6; }
.ck .tip { position:absolute; padding:4px 9px; border:1px solid var(--line); border-radius:6px; background:var(--field);
  font-size:13px; pointer-events:none; display:grid; grid-template-columns:auto auto; gap:0 10px; }
.ck .tip .number { display:flex; flex-wrap:wrap; align-items:center; gap:0 5px; white-space:nowrap; }
.ck .tip b { grid-column:1 / -1; }
.ck .tip .line { display:flex; gap:6px; align-items:center; overflow-wrap:anywhere; }
.ck .knob { max-width:none; }
.ck .knob span { min-width:0; }
.ck .knob output { white-space:normal; overflow-wrap:anywhere; }
.ck table { border-collapse:collapse; width:auto; margin:4px 0 0; font-size:14px; }
.ck tr { background:none !important; } /* notebooks stripe their tables */
.ck th, .ck td { padding:3px 8px; text-align:right; font-weight:400; color:var(--ink); border:0; font-variant-numeric:tabular-nums; }
.ck thead th { color:var(--soft); vertical-align:bottom; }
.ck thead [colspan] { text-align:center; }
.ck tbody { border-top:1px solid var(--line); }
.ck tbody th { text-align:left; overflow-wrap:anywhere; }
.ck td.least { font-weight:700; }
@media (max-width:520px) { .ck table { width:100%; } .ck th, .ck td { padding:3px; font-size:13px; } }
`;
const DASHES = [null, "7 6", "1 5", "10 5 1 5", "15 6", "4 5"];
const CLOCK = [1, 2, 3, 4, 6, 8, 12, 24, 48, 72, 96, 168, 336, 672, 1344]; // steps between labels, which often count hours

const KNOWN = {name: "known", look: {class: "known"}, band: null};
const CAME = {name: "what came", look: {class: "came"}, band: null};

/** A name with a piece of its line in front. */
const key = ({name, look, band}) => [h("svg", {class: "sample", viewBox: "0 0 30 12", "aria-hidden": "true"},
  band ? h("rect", {width: 30, height: 12, class: "band", fill: look.stroke}) : null,
  h("path", {d: "M2 6H28", fill: "none", "stroke-linecap": "round", ...look})), name];

/** Round numbers from just below `low` to just above `high`. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((k) => k * power >= rough * (1 - 1e-9));
  const first = Math.floor(low / step + 1e-9);
  const length = Math.ceil(high / step - 1e-9) - first + 1;
  return {values: Array.from({length}, (_, i) => (first + i) * step), digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9))};
}

export function mount(el, data) {
  let title, keys, plot, tip, slider, status, table, values, models, horizon, k;
  let hidden = new Set(); // names of models
  let pointed = null; // the index under the pointer
  let grabbed = null; // where the pointer took hold, and of which cut
  let view; // how an index lies in the picture, from the last drawing

  function build() {
    const box = root(el, STYLE, "Forecast", data.title);
    title = h("strong");
    keys = h("div", {class: "keys", role: "group", "aria-label": "Models"});
    plot = h("div", {class: "plot", onpointerdown: grab, onpointermove: move, onpointerup: release, onpointercancel: release,
      onpointerleave: (e) => { if (e.pointerType === "mouse") { pointed = null; draw(); } }}); // a finger leaves whenever it is lifted
    tip = h("div", {class: "tip", "aria-hidden": "true"});
    slider = h("div", {class: "row"});
    status = h("p", {"aria-live": "polite"});
    table = h("table");
    box.append(title, keys, plot, slider, status, table);
    new ResizeObserver(() => { if (plot.clientWidth !== view?.width) draw(); }).observe(plot);
  }

  function update(next) {
    const same = models && `${next.cuts}` === `${data.cuts}`; // what is looked at stays
    if (!same) k = next.start;
    data = next;
    pointed = grabbed = null;
    const {shape: [K, n]} = data.forecasts[0];
    horizon = n;
    values = unpack(data.values).values;
    const means = (x) => x && {each: unpack(x.each).values, all: x.all ?? NaN};
    models = data.names.map((name, i) => ({name, values: unpack(data.forecasts[i]).values, band: data.bands[i] && unpack(data.bands[i]).values,
      error: means(data.errors[i]), inside: means(data.inside[i]), extent: data.extents[i + 1],
      look: i === data.best ? {stroke: "var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "2 4"}
        : {stroke: `var(--model${i})`, "stroke-width": 2.4, "stroke-dasharray": DASHES[i]}}));
    title.textContent = data.title;
    keys.replaceChildren(...models.map((model) => h("button", {type: "button", "aria-pressed": !hidden.has(model.name), onclick: ({currentTarget}) => {
      if (!hidden.delete(model.name)) hidden.add(model.name);
      currentTarget.setAttribute("aria-pressed", !hidden.has(model.name));
      look();
    }}, ...key(model))), h("span", {}, ...key(KNOWN)), h("span", {}, ...key(CAME)));
    const knobbed = knob("Cut", 0, K - 1, (i) => time(data.cuts[i]), (i) => { k = i; look(); });
    knobbed.label.querySelector("output").style.minWidth = `min(${Math.max(...data.cuts.map((cut) => time(cut).length))}ch, 50%)`;
    slider.replaceChildren(knobbed.label);
    slider.hidden = K < 2;
    slider.show = knobbed.show;
    look();
  }

  const at = (t) => values[t - data.offset] ?? NaN;
  const time = (t) => data.labels?.[t - data.offset] ?? `${t}`;
  const when = (t) => (data.labels ? time(t) : `time step ${t}`);
  const show = (x) => (Number.isNaN(x) ? "–" : num(x, data.digits));
  const withUnit = (x) => `${show(x)}${data.unit && `\u00a0${data.unit}`}`; // never at the end of a line without it
  const percent = (x) => (Number.isNaN(x) ? "–" : `${num(100 * x, 1)}\u00a0%`);
  const visible = () => models.filter(({name}) => !hidden.has(name));
  const competing = () => visible().filter((model) => model !== models[data.best]);

  function look() {
    slider.show(k);
    draw();
    const cut = data.cuts[k];
    const missing = Array.from({length: horizon}, (_, i) => at(cut + i)).filter(Number.isNaN).length;
    const least = (of) => competing().reduce((a, b) => (of(b) < (a ? of(a) : Infinity) ? b : a), null); // null where nothing is known
    const [here, all] = [(model) => model.error.each[k], (model) => model.error.all];
    const says = [`Forecast from ${when(cut)} on (cut ${k + 1} of ${data.cuts.length}).`];
    if (!visible().length) says.push("No model is shown.");
    else if (missing === horizon) says.push("Nothing is known of what came.");
    else if (competing().length) {
      const [a, b] = [least(here), least(all)];
      const alone = competing().length === 1;
      says.push(`${alone ? "Mean" : "Lowest mean"} absolute error: ${a.name}, ${withUnit(here(a))}; over all cuts ${b === a ? "" : `${b.name}, `}${withUnit(all(b))}.`);
    }
    const best = models[data.best];
    if (visible().includes(best) && missing < horizon) says.push(`Best possible: ${withUnit(here(best))}, over all cuts ${withUnit(all(best))}.`);
    if (missing && missing < horizon) says.push(`${missing} of the ${horizon} values that came ${missing > 1 ? "are" : "is"} missing.`);
    for (const {name, inside} of visible()) {
      if (inside && missing < horizon) says.push(`Inside the band of ${name}: ${percent(inside.each[k])} of the values, over all cuts ${percent(inside.all)}.`);
    }
    status.textContent = says.join(" ");
    fill(least(here), least(all), here, all);
  }

  function fill(leastHere, leastAll, here, all) {
    const banded = models.some(({inside}) => inside);
    const several = competing().length > 1;
    const cell = (text, least) => h("td", {class: `number${least && several ? " least" : ""}`}, text);
    const pair = () => [h("th", {scope: "col"}, "this cut"), h("th", {scope: "col"}, "all cuts")];
    table.replaceChildren(
      h("thead", {},
        h("tr", {}, h("td", {}), h("th", {colspan: 2, scope: "colgroup"}, `Mean absolute error${data.unit && ` (${data.unit})`}`),
          banded ? h("th", {colspan: 2, scope: "colgroup"}, "Inside the band") : null),
        h("tr", {}, h("td", {}), ...pair(), ...(banded ? pair() : []))),
      h("tbody", {}, ...models.map((model) => h("tr", {}, h("th", {scope: "row"}, model.name),
        cell(show(here(model)), model === leastHere), cell(show(all(model)), model === leastAll),
        ...(banded ? [model.inside?.each[k], model.inside?.all].map((x) => cell(x === undefined ? "" : percent(x))) : [])))));
  }

  /** The axis of time is longer than history and horizon, so that the cut moves on it; a long series moves along, but less. */
  function across(left, right) {
    const [cuts, {history}] = [data.cuts, data];
    const distance = cuts.at(-1) - cuts[0];
    const [total, need] = [history + distance + horizon, history + horizon];
    const count = Math.min(total, Math.round(need * 1.2)); // indices on the axis
    const low = cuts[0] - history + (total - count) * (distance && (cuts[k] - cuts[0]) / distance);
    const step = (right - left) / count;
    return {low, step, first: Math.ceil(low), last: Math.floor(low + count - 1),
      x: (t) => left + (t - low + 0.5) * step};
  }

  function draw() {
    const width = plot.clientWidth || 700; // of an element that is not shown yet there is none
    const height = width < 520 ? 260 : 330;
    const extents = [data.extents[0], ...visible().map(({extent}) => extent)].filter(Boolean);
    let [low, high] = [Math.min(...extents.map(([a]) => a)), Math.max(...extents.map(([, b]) => b))];
    if (!extents.length) [low, high] = [0, 1];
    if (low === high) [low, high] = [low - 1, high + 1];
    const up = ticks(low, high, 5);
    const names = up.values.map((value) => num(value, up.digits));
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = "12px system-ui, sans-serif";
    const wide = (text) => pen.measureText(text).width;
    const [L, R, T, B] = [Math.max(...names.map(wide)) + 12, width - 4, data.unit ? 40 : 24, height - (data.labels ? 26 : 42)];
    view = {width, L, ...across(L, R)};
    const {x, first, last} = view;
    const y = (value) => B - (B - T) * (value - up.values[0]) / (up.values.at(-1) - up.values[0]);
    /** A line from one index to another; a gap where there is no number, a dot where one stands alone. */
    const trace = (from, to, of) => {
      let [path, on] = ["", false];
      for (let t = from; t < to; t++) {
        const value = of(t);
        if (!Number.isNaN(value)) path += `${on ? "L" : "M"}${x(t).toFixed(1)} ${y(value).toFixed(1)}${on ? "" : "h0"}`;
        on = !Number.isNaN(value);
      }
      return path;
    };
    const cut = data.cuts[k];
    const svg = h("svg", {viewBox: `0 0 ${width} ${height}`, style: `height:${height}px`, "aria-hidden": "true"});
    const text = (attributes, words) => h("text", attributes, words);
    svg.append(h("rect", {x: x(cut - 0.5), y: T, width: horizon * view.step, height: B - T, fill: "var(--field)"}));
    up.values.forEach((value, i) => svg.append(h("line", {x1: L, x2: R, y1: y(value), y2: y(value), stroke: "var(--line)", "stroke-width": i ? 0.6 : 1.2}),
      text({class: "quiet tick", x: L - 7, y: y(value) + 4, "text-anchor": "end"}, names[i])));
    if (data.unit) svg.append(text({x: 0, y: 13}, data.unit));
    const longest = Math.max(...Array.from({length: last - first + 1}, (_, i) => wide(time(first + i))));
    const steps = data.labels ? CLOCK : [0, 1, 2, 3, 4, 5, 6].flatMap((e) => [1, 2, 5].map((m) => m * 10 ** e));
    const every = steps.find((s) => s * view.step > longest + 14) ?? Infinity;
    for (let t = Math.ceil(Math.max(0, first) / every) * every, free = 0; t <= last; t += every) {
      const [size, left] = [wide(time(t)) + 1, x(t) - wide(time(t)) / 2];
      const from = Math.max(0, Math.min(width - size, left)); // at an end of the axis beside its tick rather than cut off
      svg.append(h("line", {x1: x(t), x2: x(t), y1: B, y2: B + 5, stroke: "var(--soft)"}));
      if (from < free) continue;
      svg.append(text({class: "quiet tick", x: from, y: B + 20}, time(t)));
      free = from + size + 8;
    }
    if (!data.labels) svg.append(text({x: (L + R) / 2, y: height - 5, "text-anchor": "middle"}, "time step"));
    const shown = Math.max(cut - data.history, first);
    svg.append(h("path", {class: "far", d: trace(first, last + 1, at)}), h("path", {class: "came", d: trace(cut, cut + horizon, at)}));
    const of = ({values: all}) => (t) => all[k * horizon + t - cut];
    for (const {band, look: {stroke}} of visible()) {
      if (!band) continue;
      const edge = (side) => Array.from({length: horizon}, (_, i) => `${x(cut + i).toFixed(1)} ${y(band[2 * (k * horizon + i) + side]).toFixed(1)}`);
      svg.append(h("path", {class: "band", d: `M${[...edge(0), ...edge(1).reverse()].join("L")}Z`, style: `fill:${stroke}`, stroke}));
    }
    svg.append(h("path", {class: "known", d: trace(shown, cut, at)}));
    const behind = (model) => Number(model === models[data.best]);
    for (const model of visible().sort((a, b) => behind(b) - behind(a))) svg.append(h("path", {class: "forecast", d: trace(cut, cut + horizon, of(model)), ...model.look}));
    svg.append(h("line", {class: "cut", x1: x(cut - 0.5), x2: x(cut - 0.5), y1: T - 4, y2: B, stroke: "var(--ink)", "stroke-dasharray": "4 3"}),
      text({x: Math.min(x(cut - 0.5), R - 20), y: T - 8, "text-anchor": "middle"}, data.cuts.length > 1 ? "◂ cut ▸" : "cut"));
    plot.replaceChildren(svg, tip);
    tip.hidden = pointed === null;
    if (tip.hidden) return;
    const rows = [[pointed < cut ? KNOWN : CAME, at(pointed)]];
    if (pointed >= cut && pointed < cut + horizon) rows.push(...visible().map((model) => [model, of(model)(pointed), model.band?.subarray(2 * (k * horizon + pointed - cut))]));
    svg.append(h("line", {x1: x(pointed), x2: x(pointed), y1: T, y2: B, stroke: "var(--soft)"}),
      ...rows.filter(([, value]) => !Number.isNaN(value)).map(([{look}, value]) => h("circle", {cx: x(pointed), cy: y(value), r: 4, fill: look.stroke ?? "var(--ink)"})));
    tip.replaceChildren(h("b", {}, when(pointed)), ...rows.flatMap(([line, value, band]) => [h("span", {class: "line"}, ...key(line)),
      h("span", {class: "number"}, Number.isNaN(value) ? "missing" : withUnit(value), band ? h("span", {}, ` (${show(band[0])} to ${show(band[1])})`) : null)]));
    const [side, from] = x(pointed) > width / 2 ? ["right", width - x(pointed) + 12] : ["left", x(pointed) + 12];
    tip.style.cssText = `top:${T + 4}px;${side}:${from}px;max-width:${width - from}px`;
  }

  function grab(event) {
    if (event.button) return;
    grabbed = {x: event.clientX, cut: data.cuts[k]};
    plot.setPointerCapture(event.pointerId);
    point(event);
  }

  function move(event) {
    if (!grabbed) return point(event);
    // as far on the axis as the pointer moves on it; on an axis that itself moves, the line lags behind the pointer
    const wanted = grabbed.cut + (event.clientX - grabbed.x) / view.step;
    const nearest = data.cuts.reduce((best, cut, i) => (Math.abs(cut - wanted) < Math.abs(data.cuts[best] - wanted) ? i : best), 0);
    if (nearest === k) return;
    [k, pointed] = [nearest, null];
    look();
  }

  function release() {
    if (!grabbed) return;
    grabbed = null;
    slider.querySelector("input").focus({preventScroll: true}); // the arrow keys go on from here
  }

  function point(event) {
    const t = Math.round(view.low + (event.clientX - plot.getBoundingClientRect().left - view.L) / view.step - 0.5);
    pointed = t >= Math.max(view.first, 0) && t <= view.last ? t : null;
    draw();
  }

  build();
  update(data);
  return {update};
}
