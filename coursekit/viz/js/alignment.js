// Step through a decoding and see where each output looked.
// data: {title, source: [token], target: [token], weights: pack (T, S), step, live, typed, error}

import {unpack, h, field, viridis, root} from "./shared.js";

const STYLE = `
.ck { max-width:1500px; }
.ck .row { max-width:760px; }
.ck .sides { display:flex; flex-wrap:wrap; gap:0 24px; align-items:flex-start; } /* on a slide the table stands beside the drawing */
.ck .drawing { flex:1 1 560px; max-width:760px; min-width:0; }
.ck .scroll { overflow-x:auto; margin-top:10px; position:relative; min-width:0; max-width:100%; }
.ck table { border-collapse:separate; border-spacing:1px; font-size:12px; }
.ck p.caption { margin:0 0 2px; }
.ck th { font-weight:500; padding:1px 4px; min-width:24px; text-align:center; color:var(--ink); }
.ck tbody tr { cursor:pointer; background:none !important; } /* notebooks stripe their tables */
.ck td { min-width:27px; height:22px; padding:0 2px; text-align:center; font-variant-numeric:tabular-nums; }
.ck td span.small { position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%); }
.ck tr[aria-current] th { color:var(--accent); font-weight:700; }
.ck tr[aria-current] { outline:2px solid var(--accent); }
.ck .weight { font-variant-numeric:tabular-nums; }
.ck .error { color:var(--accent2); }
`;

const [WIDE, MARGIN, LEAST] = [760, 20, 11]; // of the drawing, at most; the smallest size at which a word is written across
const SMALL = 8; // size of the digits below which only the largest weight is written

/** Where n words stand in a row: {x, room: narrowest place, size, upright, names, deep: how far they hang down}.
 *  Each has the same room if that is enough, else as much as it needs; where even small letters do not fit, they stand
 *  on end, long words cut. `least` is the room that anything else in a place needs. */
function layout(tokens, least, width) {
  const pen = document.createElement("canvas").getContext("2d");
  const measure = (text, size) => { pen.font = `700 ${size}px system-ui, sans-serif`; return pen.measureText(text).width; };
  const [n, all] = [tokens.length, width - 2 * MARGIN];
  const even = (size, upright, names) => ({size, upright, names,
    deep: upright ? Math.max(...names.map((name) => measure(name, size))) - 0.8 * size : 0, room: all / n, x: names.map((_, i) => MARGIN + all * (i + 0.5) / n)});
  for (let size = 16; size >= LEAST; size--) {
    const needs = tokens.map((token) => Math.max(least, measure(token, size)) + 0.5 * size);
    if (Math.max(...needs) <= all / n) return even(size, false, tokens);
    const free = (all - needs.reduce((sum, need) => sum + need, 0)) / n;
    if (free < 0) continue;
    let left = MARGIN;
    const x = needs.map((need) => { left += need + free; return left - (need + free) / 2; });
    return {size, upright: false, names: tokens, deep: 0, room: Math.min(...needs) + free, x};
  }
  const names = tokens.map((token) => token.length > 16 ? `${token.slice(0, 15)}…` : token);
  return even(Math.min(14, 0.7 * all / n), true, names);
}

export function mount(el, data, {emit}) {
  const box = root(el, STYLE, "Attention alignment", data.title);
  const title = h("strong");
  const typed = data.live ? field("Source", "Decode", data.typed, (source) => emit({source})) : null; // outside what updates replace, so that it keeps text and focus
  const error = h("p", {class: "error", role: "alert"});
  const body = h("div");
  box.append(...[title, typed, error, body].filter(Boolean));
  let timer = null;
  let state;

  function start(fresh) {
    data = fresh;
    const {shape: [T, S], values} = unpack(data.weights);
    state = {T, S, row: (t) => values.subarray(t * S, (t + 1) * S), step: Math.min(data.step ?? 0, T - 1)};
    stop();
    build();
    show(state.step);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
  }

  function build() {
    const button = (label, text, action) =>
      h("button", {type: "button", "aria-label": label, title: label, onclick: () => { stop(); action(); }}, text);
    state.status = h("p", {"aria-live": "polite"});
    state.picture = h("div", {class: "drawing"});
    state.slider = h("input", {type: "range", min: 1, max: state.T, step: 1, "aria-label": "Output step",
      style: "flex:1 1 60px", oninput: (e) => { stop(); show(e.target.value - 1); }});
    state.play = h("button", {type: "button", onclick: play});
    const controls = h("div", {class: "row"},
      button("First step", "⏮", () => show(0)), button("Previous step", "◀", () => show(state.step - 1)), state.slider,
      button("Next step", "▶", () => show(state.step + 1)), button("Last step", "⏭", () => show(state.T - 1)), state.play);
    title.textContent = data.title;
    error.textContent = data.error ?? "";
    body.replaceChildren(state.status, controls, h("div", {class: "sides"}, state.picture, table()));
  }

  function table() {
    const wide = state.S > 14;
    const head = h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "output\u00a0↓ source\u00a0→"),
      ...data.source.map((token) => h("th", {scope: "col"}, token))));
    state.rows = data.target.map((token, t) => h("tr", {onclick: () => { stop(); show(t); }},
      h("th", {scope: "row"}, `${t + 1}: ${token}`),
      ...Array.from(state.row(t), (weight, s) => {
        const {fill, ink} = viridis(weight);
        return h("td", {style: `background:${fill};color:${ink}`, title: `output ${t + 1} (${token}) → source ${s + 1} (${data.source[s]}): ${weight.toFixed(3)}`},
          h("span", {class: wide ? "small" : ""}, weight.toFixed(2)));
      })));
    return h("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "All weights"},
      h("p", {class: "caption"}, "All weights, dark 0 to light 1. Choose a row to see it in the drawing."), // else as wide as the table
      h("table", {"aria-label": "All weights"}, head, h("tbody", {}, ...state.rows)));
  }

  function show(step) {
    const {T} = state;
    step = state.step = Math.max(0, Math.min(T - 1, Number(step)));
    const weights = Array.from(state.row(step));
    const peak = weights.indexOf(Math.max(...weights));
    state.slider.value = step + 1;
    state.slider.setAttribute("aria-valuetext", `step ${step + 1} of ${T}`);
    state.status.textContent = `Step ${step + 1} of ${T}: output ${data.target[step]} looks most at source position `
      + `${peak + 1} (${data.source[peak]}), weight ${weights[peak].toFixed(2)}.`;
    state.rows.forEach((row, t) => t === step ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current"));
    state.picture.replaceChildren(picture(step, weights, peak));
    label();
  }

  function picture(step, weights, peak) {
    const [top, high, gap] = [34, 92, 96];
    const width = Math.min(WIDE, state.picture.clientWidth || WIDE);
    const room = 0.32 * (width - 2 * MARGIN) / state.S; // size of the weights' digits, if all are to have their place
    const [digits, all] = room < SMALL ? [LEAST, false] : [Math.min(12, room), true];
    const [source, target] = [layout(data.source, all ? 2.4 * digits : 0, width), layout(data.target, 0, width)];
    const sourceY = top + high + 20; // of a word across; a word on end hangs from 12 above
    const from = sourceY + 6 + source.deep; // where the lines begin
    const to = from + gap - 22; // where they end
    const targetY = to + target.size;
    const bottom = targetY + target.deep;
    const wide = Math.min(46, 0.72 * source.room);
    const svg = h("svg", {viewBox: `0 0 ${width} ${bottom + 26}`, "aria-hidden": "true"});
    const text = (x, y, value, more = {}) => h("text", {x, y, "text-anchor": "middle", ...more}, value);
    const word = (row, i, y, value, more) => row.upright
      ? text(row.x[i], y - 12, value, {"font-size": row.size, ...more, "text-anchor": "end", class: `word ${more.class ?? ""}`,
        transform: `rotate(-90 ${row.x[i]} ${y - 12}) translate(0 ${0.35 * row.size})`})
      : text(row.x[i], y, value, {"font-size": row.size, ...more, class: `word ${more.class ?? ""}`});
    svg.append(h("line", {x1: MARGIN, x2: width - MARGIN, y1: top + high, y2: top + high, stroke: "var(--line)"}));
    weights.forEach((weight, s) => {
      const tall = weight * high;
      const {fill} = viridis(weight);
      svg.append(h("rect", {x: source.x[s] - wide / 2, y: top + high - tall, width: wide, height: tall, fill,
        stroke: "var(--soft)", "stroke-width": weight > 0.004 ? 0.8 : 0}));
      if (all || s === peak) svg.append(text(source.x[s], top + high - tall - 4, weight.toFixed(2), {class: "weight quiet", "font-size": digits}));
      svg.append(h("line", {x1: target.x[step], y1: to, x2: source.x[s], y2: from, stroke: "var(--accent)",
        "stroke-width": (8 * weight).toFixed(2), "stroke-opacity": weight > 0.004 ? 0.25 + 0.6 * weight : 0, "stroke-linecap": "round"}));
      svg.append(word(source, s, sourceY, source.names[s], {"font-weight": weight >= 0.5 ? 700 : 400}));
    });
    target.names.forEach((token, t) => svg.append(word(target, t, targetY, t <= step ? token : "·",
      {"font-weight": t === step ? 700 : 400, class: t === step ? "" : "quiet"})));
    svg.append(text(MARGIN, bottom + 20, "outputs so far", {"text-anchor": "start", "font-size": 12, class: "quiet"}));
    svg.append(text(MARGIN, 12, "weight on each source position", {"text-anchor": "start", "font-size": 12, class: "quiet"}));
    return svg;
  }

  function label() {
    state.play.textContent = timer ? "❚❚ Pause" : "Play";
  }

  function play() {
    if (timer) { stop(); return label(); }
    if (state.step === state.T - 1) show(0);
    timer = setInterval(() => {
      if (!box.isConnected) return stop();
      if (state.step < state.T - 1) return show(state.step + 1);
      stop();
      label();
    }, 700);
    label();
  }

  box.addEventListener("keydown", (event) => {
    if (["text", "range"].includes(event.target.type)) return;
    const go = {ArrowLeft: state.step - 1, ArrowRight: state.step + 1, Home: 0, End: state.T - 1}[event.key];
    if (go === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    stop();
    show(go);
  });
  start(data);
  let wide = box.clientWidth;
  new ResizeObserver(() => { // the drawing takes the width that there is
    if (box.clientWidth !== wide) show(state.step);
    wide = box.clientWidth;
  }).observe(box);
  return {update: start};
}
