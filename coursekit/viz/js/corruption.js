// How an image is corrupted: the clean view, the mask and the corrupted view, for as many blocks as one likes.
// data: {title, clean, noise, other: pack_bytes (n, S, S, 3), blocks: [[[top, left, height, width]]] of each image, in pixels}

import {inflate, num, h, paint, PICTURE, CONTROLS, words, strip, knob, root} from "./shared.js";

const STYLE = `${PICTURE}${CONTROLS}
.ck { --aspect:1; }
.ck p[aria-live] { min-height:1.45em; color:var(--ink); font-size:16px; }
.ck .views { display:grid; grid-template-columns:repeat(3, minmax(0, 240px)); gap:10px; }
.ck figure { margin:0; min-width:0; }
.ck figcaption { color:var(--soft); font-size:14px; margin-top:3px; }
.ck figcaption .number { color:var(--ink); font-variant-numeric:tabular-nums; }
.ck .picture .last { stroke:#d55e00; stroke-width:3; }
.ck .setting { display:flex; gap:8px; align-items:center; flex-wrap:wrap; }
.ck .setting span { min-width:7.5em; }
.ck .setting > button { margin:6px 0; }
.ck .setting > button[aria-pressed=true] { border-color:var(--accent2); box-shadow:inset 0 0 0 1px var(--accent2); }
.ck .knob { margin:10px 0 2px; }
`;
const [COVERED, FREE] = [[255, 255, 255], [48, 48, 56]];
const GREY = [0.299, 0.587, 0.114]; // how bright red, green and blue look, as in coursekit/data/augment.py

export function mount(el, data) {
  if (!globalThis.DecompressionStream) return {update() {}}; // an old browser: the static picture stays
  let box, title, status, images, count, fill, turn, grey, canvases, last, covered, which, fresh = 0;
  let S, n, clean, fillings, shown, k, filling, turns, grown; // k: how many blocks; filling: 0 noise, 1 the other image; grown: grey

  async function update(next) {
    const now = ++fresh;
    const [a, b, c] = await Promise.all([next.clean, next.noise, next.other].map(inflate));
    if (now !== fresh) return; // something newer has come meanwhile
    data = next;
    [n, S] = a.shape;
    [clean, fillings] = [a.values, [b.values, c.values]];
    if (!box) build();
    [shown, k, filling, turns, grown] = [0, data.blocks[0].length, 0, 0, false];
    title.textContent = data.title;
    const places = Array.from({length: S * S}, (_, p) => p);
    const small = Array.from({length: n}, (_, i) => {
      const canvas = h("canvas");
      paint(canvas, [S, S], places, (p) => pixel(clean, i, p));
      return canvas;
    });
    which = strip(small, small.map((_, i) => `Image ${i}`), (i) => { [shown, k] = [i, data.blocks[i].length]; look(); });
    images.replaceChildren(which.group);
    last.parentNode.setAttribute("viewBox", `0 0 ${S} ${S}`);
    look();
  }

  function build() {
    box = root(el, STYLE, "Corruption", data.title);
    title = h("strong");
    status = h("p", {"aria-live": "polite"});
    images = h("div");
    canvases = ["clean", "mask", "corrupted"].map((name) => h("canvas", {role: "img", "aria-label": name}));
    last = h("rect", {class: "last"});
    covered = h("b", {class: "number"});
    const figure = (canvas, ...caption) => h("figure", {}, h("div", {class: "picture"}, canvas, canvas === canvases[1] ? h("svg", {"aria-hidden": "true"}, last) : null), h("figcaption", {}, ...caption));
    count = knob("Blocks", 0, 1, (x) => `${x} of ${data.blocks[shown].length}`, (x) => { k = x; look(); });
    fill = words("Filled with", ["noise", "the other image"], (i) => { filling = i; look(); });
    turn = words("Quarter turns", ["0", "1", "2", "3"], (i) => { turns = i; look(); });
    grey = h("button", {type: "button", onclick: () => { grown = !grown; look(); }}, "Grey");
    const setting = (name, control) => h("div", {class: "setting"}, h("span", {"aria-hidden": "true"}, name), control);
    box.append(title, images, status, h("div", {class: "views"},
      figure(canvases[0], "clean"), figure(canvases[1], "mask: ", covered), figure(canvases[2], "corrupted")),
      count.label, setting("Filled with", fill.group), setting("Quarter turns", turn.group), setting("Colours", grey));
  }

  /** The colours of a pixel, row by row, of an image. */
  function pixel(values, i, p) {
    const at = 3 * (i * S * S + p);
    return [values[at], values[at + 1], values[at + 2]];
  }

  /** Where a pixel comes from when the image is turned anticlockwise. */
  function source(p) {
    const [r, c] = [Math.floor(p / S), p % S];
    const [from, column] = [[r, c], [c, S - 1 - r], [S - 1 - r, S - 1 - c], [S - 1 - c, r]][turns];
    return from * S + column;
  }

  /** Show what is chosen and say it. */
  function look() {
    const blocks = data.blocks[shown].slice(0, k);
    const mask = new Uint8Array(S * S); // 1 in any of the blocks
    for (const [top, left, high, wide] of blocks) {
      for (let r = top; r < top + high; r++) mask.fill(1, r * S + left, r * S + left + wide);
    }
    const places = Array.from(mask.keys());
    const turned = (p) => pixel(clean, shown, source(p));
    paint(canvases[0], [S, S], places, turned);
    paint(canvases[1], [S, S], mask, (x) => (x ? COVERED : FREE));
    paint(canvases[2], [S, S], places, (p) => {
      const rgb = mask[p] ? pixel(fillings[filling], shown, p) : turned(p);
      return grown ? Array(3).fill(Math.round(rgb.reduce((sum, x, i) => sum + GREY[i] * x, 0))) : rgb;
    });
    const [top, left, high, wide] = blocks.at(-1) ?? [0, 0, 0, 0];
    for (const [name, value] of Object.entries({x: left, y: top, width: wide, height: high})) last.setAttribute(name, value);
    const total = mask.reduce((sum, x) => sum + x, 0);
    const whole = (x) => x.toLocaleString("en-US");
    const share = `${num(100 * total / (S * S), 1)} %`;
    covered.textContent = `${whole(total)} of ${whole(S * S)} pixels, ${share.replace(" ", "\u00a0")}`;
    which.show(shown);
    count.show(k, data.blocks[shown].length);
    fill.show(filling);
    turn.show(turns);
    grey.setAttribute("aria-pressed", grown);
    const made = [["", `turned by ${90 * turns}°${turns === 2 ? "" : " anticlockwise"}`][Number(turns > 0)], grown ? "grey" : ""].filter(Boolean);
    const what = k ? `${k} ${k > 1 ? "blocks cover" : "block covers"} ${share} of it with ${filling ? "another image" : "noise"}` : "nothing is covered";
    status.textContent = `${[`Image ${shown}`, ...made].join(", ")}: ${what}.`;
  }

  update(data);
  return {update};
}
