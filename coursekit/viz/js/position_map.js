// How alike the positions of a grid are: a small map for each of them in its place, the chosen one large with its numbers.
// data: {title, grid: [rows, columns], position: [row, column], alike: pack_bytes (N (N + 1) / 2, 2), of the lower triangle,
//   row by row: the low and the high byte of 32767 * (cosine + 1)}

import {inflate, num, h, viridis, paint, LEGEND, root, scaleOf} from "./shared.js";

const STYLE = `${LEGEND}
.ck p[aria-live] { min-height:2.9em; color:var(--ink); font-size:16px; }
.ck .sides { display:flex; gap:20px; flex-wrap:wrap; align-items:flex-start; }
.ck figure { margin:0; flex:1 1 320px; min-width:0; max-width:360px; }
.ck figcaption { color:var(--soft); font-size:14px; margin-bottom:4px; }
.ck .map { position:relative; cursor:crosshair; padding:0; }
.ck .map canvas { width:100%; aspect-ratio:var(--aspect); image-rendering:pixelated; display:block; }
.ck .map i { position:absolute; border:2px solid #fff; outline:2px solid var(--accent2); pointer-events:none; }
.ck .map i.other { border:2px dashed #fff; outline:1px solid #000; }
.ck .numbers { position:absolute; inset:0; display:grid; pointer-events:none; font-size:var(--size); font-variant-numeric:tabular-nums; }
.ck .numbers span { display:flex; align-items:center; justify-content:center; min-width:0; overflow:hidden; }
`;
const NUMBERED = 14; // most columns with a number in each place

export function mount(el, data) {
  if (!globalThis.DecompressionStream) return {update() {}}; // an old browser: the static picture stays
  let box, title, status, every, large, everyMark, marks, numbers, caption, legend, everyMap, largeMap;
  let rows, columns, N, values, low, high, chosen, other, fresh = 0; // other: the position that is compared, or null

  async function update(next) {
    const turn = ++fresh;
    const {values: bytes} = await inflate(next.alike);
    if (turn !== fresh) return; // something newer has come meanwhile
    data = next;
    [rows, columns] = data.grid;
    N = rows * columns;
    values = Float64Array.from({length: bytes.length / 2}, (_, i) => (bytes[2 * i] + 256 * bytes[2 * i + 1]) / 32767 - 1);
    [low, high] = values.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [1, -1]);
    if (!box) build();
    title.textContent = data.title;
    [chosen, other] = [data.position[0] * columns + data.position[1], null];
    box.style.setProperty("--aspect", `${columns} / ${rows}`);
    legend.replaceChildren("cosine ", ...scaleOf(num(low), num(high)));
    mosaic();
    look();
  }

  function build() {
    box = root(el, STYLE, "Position map", data.title);
    title = h("strong");
    status = h("p", {"aria-live": "polite"});
    [every, large] = [h("canvas", {"aria-hidden": "true"}), h("canvas", {"aria-hidden": "true"})];
    everyMark = h("i");
    marks = [h("i"), h("i", {class: "other"})];
    numbers = h("div", {class: "numbers", "aria-hidden": "true"});
    caption = h("figcaption");
    legend = h("p", {class: "legend"});
    const map = (label, over, ...children) => h("div", {class: "map", tabindex: 0, role: "group", "aria-label": label,
      onpointermove: (e) => over(under(e)), onclick: (e) => over(under(e))}, ...children);
    everyMap = map("A map for each position: arrow keys choose one", choose, every, everyMark);
    largeMap = map("The chosen map: arrow keys compare another position", compare, large, numbers, ...marks);
    largeMap.addEventListener("pointerleave", () => compare(null));
    box.append(title, status, h("div", {class: "sides"},
      h("figure", {}, h("figcaption", {}, "A map for each position, in its place"), everyMap),
      h("figure", {}, caption, largeMap)), legend);
    box.addEventListener("keydown", keys);
  }

  const cosine = (t, u) => values[Math.max(t, u) * (Math.max(t, u) + 1) / 2 + Math.min(t, u)];
  const colourOf = (x) => viridis(high > low ? (x - low) / (high - low) : 0.5);
  const place = (t) => `row ${Math.floor(t / columns)}, column ${t % columns}`;

  /** All maps side by side, with a gap of one pixel after each row and column of them. */
  function mosaic() {
    const wide = columns * (columns + 1);
    const all = new Float64Array(rows * (rows + 1) * wide).fill(NaN);
    for (let t = 0; t < N; t++) for (let u = 0; u < N; u++) {
      const [r, c] = [Math.floor(t / columns) * (rows + 1) + Math.floor(u / columns), t % columns * (columns + 1) + u % columns];
      all[r * wide + c] = cosine(t, u);
    }
    paint(every, [rows * (rows + 1), wide], all, (x) => (Number.isNaN(x) ? [128, 128, 128] : colourOf(x).rgb));
  }

  function under({currentTarget, clientX, clientY}) {
    const {left, top, width, height} = currentTarget.getBoundingClientRect();
    const cell = (x, n) => Math.max(0, Math.min(n - 1, Math.floor(x * n)));
    return cell((clientY - top) / height, rows) * columns + cell((clientX - left) / width, columns);
  }

  function choose(t) {
    [chosen, other] = [t, null];
    look();
  }

  function compare(u) {
    other = u;
    look();
  }

  /** Show the chosen map, mark what is chosen and say it. */
  function look() {
    const near = Array.from({length: N}, (_, u) => cosine(chosen, u));
    paint(large, [rows, columns], near, (x) => colourOf(x).rgb);
    caption.textContent = `Cosine with the position in ${place(chosen)}`;
    numbers.style.cssText = `grid-template-columns:repeat(${columns}, 1fr);--size:${columns > 10 ? 10 : 13}px`;
    numbers.replaceChildren(...(columns > NUMBERED ? [] : near.map((x) => h("span", {style: `color:${colourOf(x).ink}`}, columns > 8 ? num(x).replace("0.", ".") : num(x)))));
    const around = (mark, t) => {
      mark.hidden = t === null;
      if (t !== null) mark.style.cssText = `left:${100 * (t % columns) / columns}%;width:${100 / columns}%;top:${100 * Math.floor(t / columns) / rows}%;height:${100 / rows}%`;
    };
    around(everyMark, chosen);
    around(marks[0], chosen);
    around(marks[1], other);
    if (other !== null) {
      status.textContent = `The positions in ${place(chosen)} and in ${place(other)} have the cosine ${num(near[other], 3)}.`;
      return;
    }
    const others = near.map((x, u) => (u === chosen ? -Infinity : x));
    const best = others.indexOf(Math.max(...others));
    status.textContent = N > 1 ? `Most like the position in ${place(chosen)} is the one in ${place(best)}, cosine ${num(near[best], 3)}.` : "There is one position.";
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [down, right] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    const next = (t) => Math.max(0, Math.min(rows - 1, Math.floor(t / columns) + down)) * columns + Math.max(0, Math.min(columns - 1, t % columns + right));
    if (event.target === largeMap) compare(next(other ?? chosen));
    else choose(next(chosen));
  }

  update(data);
  return {update};
}
