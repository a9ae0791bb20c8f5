// What the causal and the padding mask allow, and the weights that the softmax gives to what is left.
// data: {title, tokens, real: [bool], causal, scores: pack (T, T)}

import {unpack, num, h, viridis, root} from "./shared.js";

const STYLE = `
.ck { max-width:880px; }
.ck p { color:var(--ink); font-size:16px; min-height:2.9em; }
.ck .row { font-size:16px; }
.ck .row label { display:flex; gap:6px; align-items:center; margin-right:14px; cursor:pointer; }
.ck .row input { width:18px; height:18px; accent-color:var(--accent); }
.ck .tokens button[aria-pressed=true] { border:1px dashed var(--accent2); color:var(--accent2); text-decoration:line-through; }
.ck .sides { display:flex; gap:22px; flex-wrap:wrap; margin-top:6px; }
.ck .side { max-width:100%; overflow-x:auto; padding:3px; }
.ck table { border-collapse:separate; border-spacing:1px; margin:0; width:auto; font-size:var(--size); }
.ck caption { text-align:left; color:var(--soft); font-size:14px; padding-bottom:2px; white-space:nowrap; }
.ck tr { background:none !important; } /* notebooks stripe their tables */
.ck th, .ck td { padding:0; border:0; text-align:center; vertical-align:middle; font-weight:500; color:var(--ink); line-height:1.2; }
.ck th { font-size:13px; max-width:70px; overflow:hidden; text-overflow:ellipsis; white-space:nowrap; }
.ck tbody th { text-align:right; padding-right:5px; }
.ck thead th { vertical-align:bottom; height:62px; }
.ck thead th span { writing-mode:vertical-rl; transform:rotate(180deg); }
.ck th.padding { color:var(--accent2); text-decoration:line-through; }
.ck td { width:var(--cell); min-width:var(--cell); height:var(--cell); font-variant-numeric:tabular-nums; cursor:default; }
.ck td.yes { background:var(--accent); color:var(--field); font-weight:700; }
.ck td.no { background:var(--field); color:var(--soft); }
.ck td.here { outline:3px solid var(--accent2); outline-offset:-1px; position:relative; }
.ck tr.empty th { color:var(--accent2); font-weight:700; }
`;

export function mount(el, data) {
  const box = root(el, STYLE, "Attention masks", data.title);
  const title = h("strong");
  const status = h("p", {"aria-live": "polite"});
  const switches = h("div", {class: "row"});
  const tokens = h("div", {class: "row tokens", role: "group", "aria-label": "Tokens; pressed: padding"});
  const sides = h("div", {class: "sides"});
  box.append(title, switches, tokens, status, sides);
  let T, scores, real, causal, padding, cell;

  function update(fresh) {
    data = fresh;
    T = data.tokens.length;
    scores = unpack(data.scores).values;
    [real, causal, padding, cell] = [[...data.real], data.causal, true, null];
    title.textContent = data.title;
    const toggle = (text, on, set) => {
      const input = h("input", {type: "checkbox", onchange: () => { set(input.checked); draw(); }});
      input.checked = on;
      return h("label", {}, input, text);
    };
    switches.replaceChildren(toggle("causal mask", causal, (on) => { causal = on; }), toggle("padding mask", padding, (on) => { padding = on; }));
    tokens.replaceChildren("Click to make padding:", ...data.tokens.map((token, s) =>
      h("button", {type: "button", onclick: () => { real[s] = !real[s]; cell = null; draw(); }}, token)));
    draw();
  }

  const allowed = (t, s) => (!causal || s <= t) && (!padding || real[s]);

  /** Softmax over what is allowed; a row without anything is all zeros. */
  function softmax(t) {
    const row = Array.from({length: T}, (_, s) => (allowed(t, s) ? scores[t * T + s] : -Infinity));
    const peak = Math.max(...row);
    const e = row.map((score) => (peak === -Infinity ? 0 : Math.exp(score - peak)));
    const total = e.reduce((sum, x) => sum + x, 0);
    return e.map((x) => (total ? x / total : 0));
  }

  function draw() {
    [...tokens.children].forEach((button, s) => button.setAttribute("aria-pressed", !real[s]));
    const side = Math.max(21, Math.min(40, Math.floor(290 / T)));
    const weights = data.tokens.map((_, t) => softmax(t));
    const grid = (name, caption, fill) => h("div", {class: "side", tabindex: 0, role: "group", "aria-label": caption,
      onfocus: () => { if (!cell) look(0, 0); }},
      h("table", {class: name, style: `--cell:${side}px;--size:${side > 30 ? 13 : 11}px`}, h("caption", {}, caption),
        h("thead", {}, h("tr", {}, h("td", {"aria-hidden": "true"}), ...data.tokens.map((token, s) => h("th", {scope: "col", class: real[s] ? "" : "padding", title: token}, h("span", {}, token))))),
        h("tbody", {}, ...data.tokens.map((token, t) => h("tr", {class: weights[t].some(Boolean) ? "" : "empty"},
          h("th", {scope: "row", class: real[t] ? "" : "padding", title: token}, token),
          ...data.tokens.map((_, s) => fill(t, s)))))));
    const over = (t, s) => ({onpointerenter: () => look(t, s)});
    sides.replaceChildren(
      grid("mask", "May query (row) attend to key (column)?", (t, s) => h("td", {class: allowed(t, s) ? "yes" : "no", ...over(t, s)}, allowed(t, s) ? "✓" : "·")),
      grid("weights", "Weights after the softmax", (t, s) => {
        const {fill, ink} = viridis(weights[t][s]);
        const text = allowed(t, s) ? num(weights[t][s]) : "0";
        return h("td", {style: `background:${fill};color:${ink}`, "data-weight": weights[t][s], ...over(t, s)}, side > 26 ? text : text.replace(/^0\./, "."));
      }));
    look(...(cell ?? []));
  }

  function look(t, s) {
    sides.querySelectorAll(".here").forEach((td) => td.classList.remove("here"));
    const name = (i) => `‘${data.tokens[i]}’ (${i})`;
    const empty = [...data.tokens.keys()].filter((i) => !data.tokens.some((_, j) => allowed(i, j)));
    const shut = empty.length ? ` Nothing is allowed for ${empty.map(name).join(", ")}: a row of zeros (a bare softmax would give NaN).` : "";
    if (t === undefined) {
      const open = data.tokens.reduce((sum, _, i) => sum + data.tokens.filter((_, j) => allowed(i, j)).length, 0);
      status.textContent = `${open} of ${T * T} pairs are allowed.${shut}`;
      return;
    }
    cell = [t, s];
    for (const table of sides.querySelectorAll("tbody")) table.rows[t].cells[s + 1].classList.add("here");
    const why = [causal && s > t ? "it comes later" : "", padding && !real[s] ? "it is padding" : ""].filter(Boolean).join(" and ");
    const [query, key] = [name(t), name(s)];
    status.textContent = (why ? `Query ${query} may not attend to key ${key}: ${why}.` : `Query ${query} attends to key ${key} with weight ${num(softmax(t)[s], 3)}.`) + shut;
  }

  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [down, right] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    const clip = (i) => Math.max(0, Math.min(T - 1, i));
    if (cell) look(clip(cell[0] + down), clip(cell[1] + right));
    else look(0, 0);
  });
  update(data);
  return {update};
}
