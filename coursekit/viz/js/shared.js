// What every widget shares: arrays, colours, themes, elements. Inlined in front of each module.

import {followTheme} from "./theme.js";

/** {shape, float32: base64} -> {shape, values: Float32Array}. The bytes are copied, so they are aligned. */
export function unpack({shape, float32}) {
  const bytes = Uint8Array.from(atob(float32), (c) => c.charCodeAt(0));
  return {shape, values: new Float32Array(bytes.buffer)};
}

/** {shape, deflated: base64 of zlib} -> promise of {shape, values: Uint8Array}. */
export async function inflate({shape, deflated}) {
  const bytes = Uint8Array.from(atob(deflated), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return {shape, values: new Uint8Array(await new Response(stream).arrayBuffer())};
}

/** A number for reading: a true minus sign, and no minus in front of zero. */
export function num(value, digits = 2) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** A new element with attributes (a key with a value of null is left out) and children. */
export function h(tag, attributes = {}, ...children) {
  const svg = ["svg", "line", "path", "rect", "text", "g", "circle", "title", "polyline"].includes(tag);
  const el = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else el.setAttribute(key, value);
  }
  el.append(...children.filter((child) => child !== null));
  return el;
}

/** A field for typing with its button; Enter sends too. */
export function field(name, action, value, send) {
  const input = h("input", {type: "text", "aria-label": name, value,
    // no form: in JupyterLab, Enter does not submit one
    onkeydown: (e) => { if (e.key === "Enter") { e.preventDefault(); send(input.value); } }});
  return h("div", {class: "row"}, h("label", {class: "typed"}, `${name}:`, input),
    h("button", {type: "button", onclick: () => send(input.value)}, action));
}

/** How a list of bars looks that are as long as their probabilities, 0 to 1: put at the end of a module's styles. */
export const BARS = `
.ck .side { min-width:0; }
.ck .name { font-size:17px; font-weight:600; margin-bottom:4px; overflow-wrap:anywhere; }
.ck .bars { display:flex; flex-direction:column; gap:6px; }
.ck .bars button, .ck .bars [role=option], .ck .rest { display:grid; grid-template-columns:minmax(60px, 32%) 1fr 62px; gap:8px; align-items:center; width:100%;
  min-height:32px; text-align:left; font-size:17px; padding:2px 8px; }
.ck .rest { color:var(--soft); border:1px solid transparent; }
.ck .bars button.same { border-color:var(--accent2); box-shadow:inset 0 0 0 1px var(--accent2); }
.ck .bars button.same:focus-visible { border-color:var(--line); box-shadow:none; } /* one ring is enough */
.ck .token { overflow:hidden; text-overflow:ellipsis; white-space:nowrap; unicode-bidi:plaintext; }
.ck .bar { height:18px; border:1px solid var(--line); border-radius:2px; }
.ck .bar i { display:block; height:100%; background:var(--accent); }
.ck .rest .bar i { background:repeating-linear-gradient(45deg, var(--soft) 0 3px, transparent 3px 7px); }
.ck .number { text-align:right; font-variant-numeric:tabular-nums; }
@media (max-width:520px) {
  .ck .bars button, .ck .bars [role=option], .ck .rest { grid-template-columns:minmax(60px, 38%) 1fr 58px; font-size:16px; }
}
`;

/** A bar that fills `share`, 0 to 1, of its frame. */
export const bar = (share) => h("span", {class: "bar", "aria-hidden": "true"}, h("i", {style: `width:${100 * share}%`}));

/** A probability with three digits, and a small one not as zero. */
export const probability = (p) => (p > 0 && p < 0.0005 ? "< 0.001" : num(p, 3));

const bytesOf = (hexes) => hexes.map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));
// viridis at 21 points (Smith and van der Walt), evenly spaced from 0 to 1
const VIRIDIS = bytesOf([
  "440154", "471365", "482475", "463480", "414487", "3b528b", "355f8d", "2f6c8e", "2a788e", "25848e", "21918c",
  "1e9c89", "22a884", "2fb47c", "44bf70", "5ec962", "7ad151", "9bd93c", "bddf26", "dfe318", "fde725",
]);
// blue below zero, orange above (ColorBrewer's PuOr and RdBu, halves that every kind of colour vision tells apart)
const DIVERGING = bytesOf(["2166ac", "4393c3", "92c5de", "d1e5f0", "f7f7f7", "fee0b6", "fdb863", "e08214", "b35806"]);

/** Colour at 0..1 of a map, as bytes and as CSS, and black or white to write on it. */
function colour(map, value) {
  const x = Math.min(1, Math.max(0, value)) * (map.length - 1);
  const i = Math.min(map.length - 2, Math.floor(x));
  const rgb = map[i].map((low, k) => Math.round(low + (x - i) * (map[i + 1][k] - low)));
  // relative luminance (WCAG 2): above 0.179 black contrasts more, below it white
  const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = rgb.map(linear).reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  return {rgb, fill: `rgb(${rgb})`, ink: luminance > 0.179 ? "#000" : "#fff"};
}

/** Colour of a number in 0..1, dark to light. */
export const viridis = (value) => colour(VIRIDIS, value);

/** Colour of a number in -1..1: blue below zero, white at it, orange above. */
export const diverging = (value) => colour(DIVERGING, (value + 1) / 2);

/** Draw an array on a canvas, one pixel for each entry; `rgb(value)` gives the bytes of its colour. */
export function paint(canvas, [rows, columns], values, rgb) {
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    [image.data[4 * i], image.data[4 * i + 1], image.data[4 * i + 2]] = rgb(values[i]);
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

/** Colour of a share in 0..1 of the largest weight, as bytes; its square root is shown, so that small weights can be seen. */
export const heatColour = (share) => HEAT[Math.round(255 * share)];
const HEAT = Array.from({length: 256}, (_, i) => viridis(Math.sqrt(i / 255)).rgb);

/** From a number to another one, with the colours between them; the look is in `LEGEND`. */
export function scaleOf(low, high, colourAt = viridis) {
  const stops = Array.from({length: 9}, (_, i) => colourAt(i / 8).fill).join(",");
  return [h("b", {class: "number"}, low), h("i", {class: "scale", style: `background:linear-gradient(90deg,${stops})`}), h("b", {class: "number"}, high)];
}

/** How the line below a picture looks that says what its colours are: put into a module's styles. */
export const LEGEND = `
.ck .legend { font-size:13px; margin-top:6px; }
.ck .legend .number { color:var(--ink); font-variant-numeric:tabular-nums; white-space:nowrap; }
.ck .scale { display:inline-block; width:90px; height:11px; vertical-align:-1px; margin:0 5px; border:1px solid var(--line); }
`;

/** How an image looks with a canvas or lines over it; `--aspect` is its width / height: put into a module's styles. */
export const PICTURE = `
.ck .picture { position:relative; aspect-ratio:var(--aspect); overflow:hidden; }
.ck .picture > * { position:absolute; inset:0; width:100%; height:100%; margin:0; max-width:none; }
.ck .picture img { object-fit:fill; }
.ck .picture canvas, .ck .fine { image-rendering:pixelated; }
.ck .picture svg { pointer-events:none; }
.ck .picture path, .ck .picture rect { fill:none; vector-effect:non-scaling-stroke; }
.ck .behind { stroke:#000; stroke-width:4; }
.ck .outline { stroke:#fff; stroke-width:2; }
.ck .picture .tag { inset:auto; width:auto; height:auto; padding:0 5px; border-radius:4px; background:#000; color:#fff; font-size:15px; font-variant-numeric:tabular-nums;
  pointer-events:none; }
`;

/** How `choices`, `strip` and `knob` look: put into a module's styles. */
export const CONTROLS = `
.ck .choices { display:flex; gap:6px; flex-wrap:wrap; align-items:center; margin:6px 0; }
.ck .choices button[aria-pressed=true] { border-color:var(--accent2); box-shadow:inset 0 0 0 1px var(--accent2); }
.ck .strip { gap:3px; }
.ck .strip button { padding:0; min-width:0; min-height:0; line-height:0; border:3px solid transparent; border-radius:5px; background:none; }
.ck .strip button[aria-pressed=true] { box-shadow:none; }
.ck .strip img, .ck .strip canvas { height:40px; width:calc(40px * (var(--aspect))); max-width:none; margin:0; }
.ck .strip canvas { image-rendering:pixelated; }
.ck .knob { display:flex; align-items:center; gap:8px; flex:1 1 220px; max-width:420px; }
.ck .knob span { min-width:7.5em; }
.ck .knob output { min-width:3em; text-align:right; }
.ck .knob input { flex:1 1 90px; min-width:60px; }
.ck .knob output { font-variant-numeric:tabular-nums; white-space:nowrap; }
`;

/** Buttons of which one is chosen: Tab reaches that one; arrow keys, Home and End choose others. `show(i)` marks it. */
export function choices(label, buttons, choose, kind = "") {
  const group = h("div", {class: `choices ${kind}`, role: "group", "aria-label": label}, ...buttons);
  buttons.forEach((button, i) => button.addEventListener("click", () => choose(i)));
  group.addEventListener("keydown", (event) => {
    const step = {ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1, Home: -Infinity, End: Infinity}[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    const next = Math.max(0, Math.min(buttons.length - 1, buttons.indexOf(event.target.closest("button")) + step));
    choose(next);
    buttons[next].focus();
  });
  const show = (chosen) => buttons.forEach((button, i) => {
    button.setAttribute("aria-pressed", i === chosen);
    button.tabIndex = i === chosen ? 0 : -1;
  });
  return {group, show};
}

/** `choices` of words. */
export const words = (label, names, choose) => choices(label, names.map((name) => h("button", {type: "button"}, name)), choose);

/** `choices` among images, small ones side by side; hidden where there is but one. */
export function strip(pictures, names, choose) {
  const buttons = pictures.map((picture, i) => h("button", {type: "button", "aria-label": names[i], title: names[i]}, picture));
  const made = choices("Images", buttons, choose, "strip");
  made.group.hidden = buttons.length < 2;
  return made;
}

/** A slider of whole numbers with its name; `read(value)` stands beside it and is what a screen reader says. */
export function knob(name, min, max, read, change) {
  const output = h("output", {"aria-hidden": "true"});
  const range = h("input", {type: "range", min, max, step: 1, "aria-label": name, oninput: () => change(Number(range.value)),
    onkeydown: (e) => { if (/^(Arrow|Home|End|Page)/.test(e.key) && !(e.ctrlKey || e.metaKey || e.altKey)) e.stopPropagation(); }});
  const show = (value, most = max) => {
    range.max = most;
    range.value = value;
    output.textContent = read(value);
    range.setAttribute("aria-valuetext", output.textContent);
  };
  return {label: h("label", {class: "knob"}, h("span", {}, name), range, output), show};
}

const THEME = `
.jp-mod-presentationMode .ck { zoom:1.25; } /* as PRESENTED in widget.py */
.ck { --ink:#1b1b1f; --soft:#5b5b66; --line:#c9c9d2; --field:#f3f3f7; --accent:#0b5fa5; --accent2:#b34700;
  color:var(--ink); font:14px/1.45 system-ui, sans-serif; max-width:760px; padding:4px 0; }
.ck[data-dark] { --ink:#ececf1; --soft:#a9a9b6; --line:#4a4a55; --field:#2a2a32; --accent:#6db8ff; --accent2:#ffb070; }
.ck * { box-sizing:border-box; print-color-adjust:exact; }
.ck strong { font-size:15px; font-weight:600; }
.ck p { margin:0 0 6px; color:var(--soft); }
.ck [hidden] { display:none !important; }
.ck p:empty { display:none; }
.ck button { font:inherit; min-width:34px; min-height:30px; padding:2px 10px; border:1px solid var(--line); border-radius:6px;
  background:var(--field); color:var(--ink); cursor:pointer; }
.ck button:disabled { opacity:.45; cursor:default; }
.ck input { font:inherit; color:var(--ink); }
.ck input[type=text] { background:var(--field); border:1px solid var(--line); border-radius:6px; padding:3px 8px; min-height:30px; }
.ck .typed { display:flex; flex:1 1 auto; align-items:center; gap:10px; max-width:100%; }
.ck .typed input { flex:1 1 auto; width:30ch; min-width:0; }
.ck input[type=range] { accent-color:var(--accent); min-height:24px; }
.ck :focus-visible { outline:3px solid var(--accent); outline-offset:2px; }
.ck textarea:focus-visible { outline-offset:-2px; } /* as wide as the widget, whose frame would cut it off */
.ck .row { display:flex; gap:6px; align-items:center; flex-wrap:wrap; margin:6px 0; }
.ck svg { display:block; width:100%; height:auto; }
.ck text { fill:var(--ink); font-family:system-ui, sans-serif; }
.ck .quiet { fill:var(--soft); }
`;

/** Empty `el` and build a root in it that follows the theme of what is behind it: widgets of a kind differ in `title`. */
export function root(el, style, label, title) {
  // JupyterLab takes arrow keys and Enter for its own commands unless the element says otherwise
  const kind = label.toLowerCase().replaceAll(" ", "-"); // keeps the styles of different widgets on a page apart
  // no <section>: reveal.js would take it for a slide
  const box = h("div", {class: `ck ${kind}`, role: "region", "aria-label": title ? `${label}: ${title}` : label,
    "data-lm-suppress-shortcuts": "true", tabindex: -1}); // a click anywhere in it gives it the keys
  el.replaceChildren(h("style", {}, THEME + style.replace(/\.ck(?=[ [])/g, `.ck.${kind}`)), box);
  followTheme(el, (dark) => box.toggleAttribute("data-dark", dark));
  return box;
}
