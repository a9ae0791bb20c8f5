// Every layer, every head: small maps to choose from, the chosen one as lines or as a matrix.
// data: {title, tokens, target, levels, weights: pack_bytes (L, H, T, S) of round(levels * weight), layer, head, live, typed, error}

import {inflate, h, field, viridis, paint, heatColour, root} from "./shared.js";

const STYLE = `
.ck p[aria-live] { min-height:1.45em; color:var(--ink); font-size:16px; }
.ck .sides { display:flex; gap:18px; flex-wrap:wrap; align-items:flex-start; }
.ck .small { flex:0 1 auto; max-width:100%; }
.ck .grid { display:grid; gap:2px; margin-top:4px; overflow-x:auto; padding:3px; justify-content:start; }
.ck .grid > span { color:var(--soft); font-size:11px; text-align:center; align-self:center; padding:0 3px; }
.ck .grid button { padding:0; min-width:0; min-height:0; border:2px solid transparent; border-radius:3px; background:none; line-height:0; }
.ck .grid button[aria-pressed=true] { border-color:var(--accent2); }
.ck .grid canvas { width:var(--side); height:var(--side); }
.ck .large { flex:1 1 340px; min-width:0; max-width:100%; }
.ck .row button[aria-pressed=true] { border-color:var(--accent); color:var(--accent); font-weight:700; box-shadow:inset 0 0 0 1px var(--accent); }
.ck .view { position:relative; max-height:560px; overflow:auto; margin-top:6px; }
.ck .lines { position:relative; display:grid; grid-template-columns:minmax(0,1fr) minmax(60px,150px) minmax(0,1fr); }
.ck .lines .between { position:relative; }
.ck .lines canvas { position:absolute; left:0; width:100%; } /* on paper, too, from word to word */
.ck .token { position:relative; height:var(--high); line-height:var(--high); padding:0 6px; white-space:nowrap; overflow:hidden; text-overflow:ellipsis;
  border-radius:4px; cursor:pointer; font-size:var(--size); display:flex; gap:6px; }
.ck .token span { overflow:hidden; text-overflow:ellipsis; }
.ck .token b { font-weight:500; font-variant-numeric:tabular-nums; font-size:.85em; }
.ck .queries .token { justify-content:flex-end; }
.ck .keys .token { justify-content:flex-start; }
.ck .token.chosen { outline:2px solid var(--accent2); outline-offset:-2px; font-weight:700; }
.ck .named { display:grid; grid-template-columns:auto minmax(0,1fr); width:min(100%, 460px); font-size:13px; }
.ck .named .down, .ck .named .across { display:flex; min-width:0; overflow:hidden; }
.ck .named .down { flex-direction:column; text-align:right; padding-right:5px; max-width:90px; }
.ck .named .across span { writing-mode:vertical-rl; transform:rotate(180deg); padding-top:5px; max-height:90px; }
.ck .named span { flex:1 1 0; min-width:0; min-height:0; display:flex; align-items:center; justify-content:flex-end; white-space:nowrap; overflow:hidden; }
.ck .named .across span { justify-content:flex-start; }
.ck .matrix { position:relative; width:min(100%, 420px); }
.ck .matrix canvas { width:100%; aspect-ratio:var(--aspect); image-rendering:pixelated; display:block; cursor:crosshair; }
.ck .matrix i { position:absolute; outline:2px solid var(--accent2); pointer-events:none; }
.ck .axes { display:flex; justify-content:space-between; font-size:12px; color:var(--soft); max-width:420px; margin:2px 0; }
.ck .error { color:var(--accent2); min-height:0; }
.ck .legend { font-size:13px; }
`;

export function mount(el, data, {emit}) {
  if (!globalThis.DecompressionStream) return {update() {}}; // an old browser: the static picture stays
  let box, title, status, error, thumbs, large, view;
  let L, H, T, S, values, fresh = 0;
  let layer, head, query, mode = "lines", key = null; // key: when a key is looked at, who looks at it
  const at = () => values.subarray((layer * H + head) * T * S, (layer * H + head + 1) * T * S);
  const weight = (t, s) => at()[t * S + s] / data.levels;

  async function update(next) {
    const turn = ++fresh;
    const maps = await inflate(next.weights);
    if (turn !== fresh) return; // something newer has come meanwhile
    data = next;
    ({shape: [L, H, T, S], values} = maps);
    const begun = Boolean(box);
    if (!begun) build();
    title.textContent = data.title;
    error.textContent = data.error ?? "";
    // the head that one looks at stays, over any number of texts; a refused one changes nothing
    [layer, head] = begun ? [Math.min(layer, L - 1), Math.min(head, H - 1)] : [data.layer, data.head];
    [query, key] = begun && data.error ? [Math.min(query, T - 1), key && Math.min(key, S - 1)] : [data.query, null];
    grid();
    draw();
  }

  function build() {
    box = root(el, STYLE, "Attention heads", data.title);
    title = h("strong");
    status = h("p", {"aria-live": "polite"});
    error = h("p", {class: "error", role: "alert"});
    thumbs = h("div", {class: "grid", role: "group", "aria-label": "Layers and heads"});
    large = h("div", {class: "view", tabindex: 0, role: "group"});
    view = ["lines", "matrix"].map((name) => h("button", {type: "button", onclick: () => { mode = name; draw(); }}, name === "lines" ? "Lines" : "Matrix"));
    box.append(...[title, data.live ? field("Text", "Read", data.typed ?? data.browser?.typed ?? data.tokens.join(" "), (source) => emit({source})) : null,
      error, status,
      h("div", {class: "sides"},
        h("div", {class: "small"}, h("div", {class: "legend quiet"}, "layers ↓ heads →"), thumbs),
        h("div", {class: "large"}, h("div", {class: "row", role: "group", "aria-label": "View"}, ...view), large)),
      h("p", {class: "legend"}, `Colour: square root of the weight, dark 0 to light 1. Weights are exact to ±${(0.5 / data.levels).toFixed(3)}.`)].filter(Boolean));
    box.addEventListener("keydown", keys);
    large.addEventListener("scroll", () => { if (mode === "lines") strokes(); });
    new ResizeObserver(() => { if (mode === "lines") strokes(); }).observe(large);
    new MutationObserver(() => { if (mode === "lines") strokes(); }).observe(box, {attributes: true, attributeFilter: ["data-dark"]});
  }

  function grid() {
    const side = Math.max(22, Math.min(64, Math.floor(300 / Math.max(H, L * 0.75))));
    thumbs.style.cssText = `grid-template-columns:auto repeat(${H}, auto); --side:${side}px`;
    const cells = [h("span"), ...Array.from({length: H}, (_, j) => h("span", {}, j))];
    for (let i = 0; i < L; i++) {
      cells.push(h("span", {}, i));
      for (let j = 0; j < H; j++) {
        const canvas = h("canvas");
        paint(canvas, [T, S], values.subarray((i * H + j) * T * S, (i * H + j + 1) * T * S), (q) => heatColour(q / data.levels));
        cells.push(h("button", {type: "button", "aria-label": `Layer ${i}, head ${j}`, title: `Layer ${i}, head ${j}`, onclick: () => choose(i, j)}, canvas));
      }
    }
    thumbs.replaceChildren(...cells);
  }

  const thumb = (i, j) => thumbs.querySelectorAll("button")[i * H + j];

  function choose(i, j) {
    [layer, head] = [Math.max(0, Math.min(L - 1, i)), Math.max(0, Math.min(H - 1, j))];
    draw();
  }

  function draw() {
    thumbs.querySelectorAll("button").forEach((button, i) => {
      const chosen = i === layer * H + head;
      button.setAttribute("aria-pressed", chosen);
      button.tabIndex = chosen ? 0 : -1; // Tab reaches the grid once, the arrow keys move in it
    });
    view.forEach((button, i) => button.setAttribute("aria-pressed", (i ? "matrix" : "lines") === mode));
    large.setAttribute("aria-label", `Layer ${layer}, head ${head}, as ${mode}`);
    const [x, y] = [large.scrollLeft, large.scrollTop];
    large.replaceChildren(...(mode === "lines" ? lines() : matrix()));
    large.scrollTo(x, y);
    look();
  }

  function lines() {
    const high = Math.max(T, S) <= 12 ? 30 : 20;
    const side = (tokens, name, over) => h("div", {class: name}, ...tokens.map((token, i) =>
      h("div", {class: "token", title: `${i}: ${token}`, onpointerenter: () => over(i), onclick: () => over(i)}, h("span", {}, token))));
    const left = side(data.target, "queries", (t) => { query = t; key = null; look(); });
    const right = side(data.tokens, "keys", (s) => { key = s; look(); });
    return [h("div", {class: "lines", style: `--high:${high}px;--size:${high === 30 ? 16 : 13}px`}, left, h("div", {class: "between"}, h("canvas", {"aria-hidden": "true"})), right)];
  }

  /** The lines between the tokens: as thick and as strong as the weights; those of the chosen token in front.
   *  The canvas covers only the part that is scrolled into sight, since 16,384 lines take their time. */
  function strokes() {
    const frame = large.firstChild;
    const [left, between] = frame.children;
    const canvas = between.firstChild;
    const [wide, tall, from] = [between.clientWidth, Math.min(frame.clientHeight, large.clientHeight), large.scrollTop];
    if (!wide) return; // on a slide that is not shown; printed, it has the lines it had
    canvas.style.cssText = `top:${from}px;height:${tall}px`;
    const sharp = Math.min(2, devicePixelRatio);
    [canvas.width, canvas.height] = [wide * sharp, tall * sharp];
    const context = canvas.getContext("2d");
    context.scale(sharp, sharp);
    context.translate(0, -from);
    const [x0, x1] = [2, wide - 2];
    const high = left.firstChild.offsetHeight;
    const map = at();
    const styles = getComputedStyle(box);
    const step = data.levels / 255;
    const line = (t, s) => {
      context.moveTo(x0, (t + 0.5) * high);
      context.bezierCurveTo((x0 + x1) / 2, (t + 0.5) * high, (x0 + x1) / 2, (s + 0.5) * high, x1, (s + 0.5) * high);
    };
    const chosen = (t, s) => (key === null ? t === query : s === key);
    const inSight = (t, s) => (Math.max(t, s) + 1) * high >= from && Math.min(t, s) * high <= from + tall;
    for (const front of [false, true]) {
      const byLevel = new Map(); // all lines of one strength are one path
      for (let t = 0; t < T; t++) for (let s = 0; s < S; s++) {
        const q = map[t * S + s];
        if (q && chosen(t, s) === front && inSight(t, s)) byLevel.has(q) ? byLevel.get(q).push([t, s]) : byLevel.set(q, [[t, s]]);
      }
      context.strokeStyle = styles.getPropertyValue(front ? "--accent" : "--soft");
      for (const [q, pairs] of byLevel) {
        const w = q / data.levels;
        context.lineWidth = Math.max(front ? 0.8 : 0.4, 7 * w);
        context.globalAlpha = front ? 0.35 + 0.65 * w : 0.3 * w + Math.min(0.03 * step, 0.03);
        context.beginPath();
        for (const [t, s] of pairs) line(t, s);
        context.stroke();
      }
    }
  }

  function matrix() {
    const canvas = h("canvas", {"aria-hidden": "true"});
    paint(canvas, [T, S], at(), (q) => heatColour(q / data.levels));
    const over = (event) => {
      const {left, top, width, height} = canvas.getBoundingClientRect();
      query = Math.max(0, Math.min(T - 1, Math.floor((event.clientY - top) / height * T)));
      key = Math.max(0, Math.min(S - 1, Math.floor((event.clientX - left) / width * S)));
      look();
    };
    canvas.addEventListener("pointermove", over);
    canvas.addEventListener("click", over);
    const map = h("div", {class: "matrix", style: `--aspect:${S} / ${T}`}, canvas, h("i", {hidden: ""}));
    const axes = h("div", {class: "axes"}, h("span", {}, "queries ↓"), h("span", {}, "keys →"));
    if (Math.max(T, S) > 20) return [axes, map];
    const names = (tokens, name) => h("div", {class: name, "aria-hidden": "true"}, ...tokens.map((token) => h("span", {}, token)));
    return [axes, h("div", {class: "named"}, h("div"), names(data.tokens, "across"), names(data.target, "down"), map)];
  }

  /** Mark what is chosen and say it. */
  function look() {
    const where = `Layer ${layer}, head ${head}`;
    const [name, other] = [(t) => `‘${data.target[t]}’ (${t})`, (s) => `‘${data.tokens[s]}’ (${s})`];
    if (mode === "lines") {
      const [left, , right] = large.firstChild.children;
      const mark = (tokens, chosen, weights) => [...tokens.children].forEach((token, i) => {
        token.classList.toggle("chosen", i === chosen);
        const w = weights?.[i] ?? 0;
        token.querySelector("b")?.remove();
        const {fill, ink} = viridis(Math.sqrt(w));
        token.style.background = w > 0 ? fill : "";
        token.style.color = w > 0 ? ink : "";
        if (w >= 0.005) token[tokens === left ? "prepend" : "append"](h("b", {}, w.toFixed(2)));
      });
      mark(left, key === null ? query : null, key === null ? null : Array.from({length: T}, (_, t) => weight(t, key)));
      mark(right, key, key === null ? Array.from({length: S}, (_, s) => weight(query, s)) : null);
      strokes();
    } else {
      const cursor = large.querySelector("i");
      cursor.hidden = false;
      const [x, w] = key === null ? [0, 100] : [100 * key / S, 100 / S];
      cursor.style.cssText = `left:${x}%;width:${w}%;top:${100 * query / T}%;height:${100 / T}%`;
    }
    if (mode === "matrix" && key !== null) {
      status.textContent = `${where}: query ${name(query)} gives key ${other(key)} the weight ${weight(query, key).toFixed(2)}.`;
    } else if (key !== null) {
      const column = Array.from({length: T}, (_, t) => weight(t, key));
      const peak = column.indexOf(Math.max(...column));
      status.textContent = column[peak] ? `${where}: key ${other(key)} gets most from query ${name(peak)}, weight ${column[peak].toFixed(2)}.` : `${where}: no query looks at key ${other(key)}.`;
    } else {
      const row = Array.from({length: S}, (_, s) => weight(query, s));
      const peak = row.indexOf(Math.max(...row));
      status.textContent = row[peak] ? `${where}: query ${name(query)} looks most at key ${other(peak)}, weight ${row[peak].toFixed(2)}.` : `${where}: query ${name(query)} looks at nothing.`;
    }
  }

  function follow() { // keep what is chosen in sight, without moving the page
    if (mode !== "lines") return;
    const token = large.querySelector(".chosen");
    if (token.offsetTop < large.scrollTop) large.scrollTop = token.offsetTop;
    const end = token.offsetTop + token.offsetHeight - large.clientHeight;
    if (end > large.scrollTop) large.scrollTop = end;
  }

  function keys(event) {
    if (event.target.type === "text" || event.ctrlKey || event.metaKey || event.altKey) return;
    const [down, right] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    if (thumbs.contains(event.target)) {
      choose(layer + down, head + right);
      return thumb(layer, head).focus();
    }
    if (mode === "matrix") {
      query = Math.max(0, Math.min(T - 1, query + down));
      if (right) key = Math.max(0, Math.min(S - 1, key === null ? 0 : key + right));
    } else if (right) key = right > 0 ? key ?? 0 : null; // between the side of the queries and that of the keys
    else if (key === null) query = Math.max(0, Math.min(T - 1, query + down));
    else key = Math.max(0, Math.min(S - 1, key + down));
    look();
    follow();
  }

  update(data);
  return {update};
}
