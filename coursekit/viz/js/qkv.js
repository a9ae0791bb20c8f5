// One step of attention with its numbers: query and keys, scores, scaling, softmax, weighted values.
// data: {title, tokens, position, allowed: [[bool]], query, key, value, scores, scaled, weights, output: pack}

import {unpack, num, h, viridis, diverging, root} from "./shared.js";

const STYLE = `
.ck p { color:var(--ink); font-size:16px; }
.ck .stages, .ck .queries { display:flex; gap:6px; flex-wrap:wrap; margin:6px 0; align-items:center; }
.ck .stages button[aria-current], .ck .queries button[aria-pressed=true] { border-color:var(--accent); color:var(--accent);
  font-weight:700; box-shadow:inset 0 0 0 1px var(--accent); }
.ck .scroll { overflow-x:auto; position:relative; }
.ck table { border-collapse:separate; border-spacing:0 3px; font-size:15px; margin:0; width:auto; }
.ck tr { background:none !important; } /* notebooks stripe their tables */
.ck th, .ck td { padding:1px 5px; text-align:left; vertical-align:middle; font-weight:500; color:var(--ink); white-space:nowrap; border:0; }
.ck thead th { color:var(--soft); font-size:14px; }
.ck td.number { text-align:right; font-variant-numeric:tabular-nums; font-size:17px; min-width:58px; }
.ck tbody th button { border-color:transparent; background:none; font-size:16px; padding:2px 6px; min-width:0; }
.ck tr.chosen th, .ck tr.chosen td { background:var(--field); }
.ck tr.chosen th button { color:var(--accent); font-weight:700; }
.ck tr.query td, .ck tr.query th { padding-bottom:9px; border-bottom:2px solid var(--line); font-weight:700; }
.ck tr.output td, .ck tr.output th { padding-top:7px; border-top:2px solid var(--line); font-weight:700; }
.ck .vector { display:flex; gap:2px; }
.ck .cell { width:var(--cell); min-height:28px; line-height:28px; text-align:center; font-size:var(--digits); border-radius:3px;
  font-variant-numeric:tabular-nums; }
.ck .bar { width:250px; height:24px; position:relative; }
.ck .bar i { position:absolute; top:0; bottom:0; display:block; border:1px solid var(--soft); }
.ck .bar.signed::before { content:""; position:absolute; left:50%; top:-3px; bottom:-3px; border-left:1px solid var(--soft); }
.ck .masked { color:var(--soft); font-size:14px; }
.ck tfoot td, .ck tfoot th { color:var(--soft); }
.ck tfoot tr:first-child td, .ck tfoot tr:first-child th { padding-top:14px; }
.ck .detail { margin-top:8px; padding:6px 10px; border-left:4px solid var(--accent); font-size:17px; }
.ck .detail sup { font-size:.75em; line-height:0; }
@media (max-width:520px) { .ck .bar { width:100px; } .ck .cell { width:calc(var(--cell) * .59); font-size:10px; letter-spacing:-.03em; }
  .ck th, .ck td { padding:1px 3px; } .ck tbody th button { font-size:14px; padding:2px; }
  .ck td.number { min-width:46px; font-size:14px; } }
`;
const STAGES = ["Query, keys", "Scores", "Scaled", "Softmax", "Output"];

export function mount(el, data) {
  const box = root(el, STYLE, "Attention step", data.title);
  const title = h("strong");
  const status = h("p", {"aria-live": "polite"});
  const stages = h("div", {class: "stages", role: "group", "aria-label": "Stage"});
  const queries = h("div", {class: "queries", role: "group", "aria-label": "Query"});
  const picture = h("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "Numbers of this stage"});
  const detail = h("div", {class: "detail"});
  box.append(title, stages, queries, status, picture, detail);
  let T, Dh, Dv, arrays, rows, foot, stage, query, chosen; // chosen: the key whose numbers are worked out below

  function update(fresh) {
    data = fresh;
    T = data.tokens.length;
    Dh = data.query.shape[1];
    Dv = data.value.shape[1];
    arrays = Object.fromEntries(["query", "key", "value", "scores", "scaled", "weights", "output"].map((name) => {
      const {shape: [, columns], values} = unpack(data[name]);
      return [name, (row) => Array.from(values.subarray(row * columns, (row + 1) * columns))];
    }));
    title.textContent = data.title;
    stage ??= 0;
    const step = (label, text, by) => h("button", {type: "button", "aria-label": label, title: label, onclick: () => show(stage + by)}, text);
    stages.replaceChildren(step("Previous stage", "◀", -1),
      ...STAGES.map((name, i) => h("button", {type: "button", onclick: () => show(i)}, `${i + 1} ${name}`)), step("Next stage", "▶", 1));
    queries.replaceChildren("Query:", ...data.tokens.map((token, t) => h("button", {type: "button", onclick: () => ask(t)}, token)));
    ask(data.position);
  }

  function ask(t) {
    query = Math.max(0, Math.min(T - 1, t));
    const scores = arrays.scores(query);
    const open = scores.map((score, s) => (data.allowed[query][s] ? score : -Infinity));
    chosen = open.indexOf(Math.max(...open));
    [...queries.children].forEach((button, i) => button.setAttribute("aria-pressed", i === query));
    show(stage);
  }

  function show(i) {
    stage = Math.max(0, Math.min(STAGES.length - 1, i));
    [...stages.children].slice(1, -1).forEach((button, k) => (k === stage ? button.setAttribute("aria-current", "step") : button.removeAttribute("aria-current")));
    stages.firstChild.disabled = stage === 0;
    stages.lastChild.disabled = stage === STAGES.length - 1;
    picture.replaceChildren(table());
    choose(chosen);
  }

  function choose(s) {
    chosen = s;
    rows.forEach((row, i) => row.classList.toggle("chosen", stage > 0 && i === s));
    foot.replaceChildren(...vectors());
    detail.replaceChildren(...formula());
    detail.hidden = !detail.childNodes.length;
    status.textContent = sentence();
  }

  const name = (s) => `‘${data.tokens[s]}’` + (data.tokens.filter((token) => token === data.tokens[s]).length > 1 ? ` (${s})` : "");
  const largest = (...vectors) => Math.max(1e-9, ...vectors.flat(Infinity).map(Math.abs));
  const all = (array) => Array.from({length: T}, (_, s) => array(s));

  function vector(values, scale, size) {
    return h("div", {class: "vector", style: `--cell:${size <= 8 ? 52 : 35}px;--digits:${size <= 8 ? 16 : 12}px`}, ...values.map((value) => {
      const {fill, ink} = diverging(value / scale);
      return h("span", {class: "cell", style: `background:${fill};color:${ink}`}, num(value, Math.abs(value) < 99.5 ? size > 8 && Math.abs(value) >= 9.95 ? 1 : 2 : 0));
    }));
  }

  function signedBar(value, scale) {
    const share = 50 * Math.abs(value) / scale;
    const {fill} = diverging(value / scale);
    return h("div", {class: "bar signed", "aria-hidden": "true"}, h("i", {style: `left:${value < 0 ? 50 - share : 50}%;width:${share}%;background:${fill}`}));
  }

  const digits = (value) => num(value, Math.abs(value) < 99.5 ? 2 : 1);
  const number = (value, kind = "") => h("td", {class: `number ${kind}`}, digits(value));

  function table() {
    const [q, scores, scaled, weights] = [arrays.query(query), arrays.scores(query), arrays.scaled(query), arrays.weights(query)];
    const qk = largest(all(arrays.query), all(arrays.key));
    const v = largest(all(arrays.value), all(arrays.output));
    const most = largest(scores);
    const may = data.allowed[query];
    const masked = (s) => (may[s] ? null : h("span", {class: "masked"}, " masked"));
    const columns = [
      {head: ["key k"], cells: (s) => [h("td", {}, vector(arrays.key(s), qk, Dh))]},
      {head: ["key k", "q·k"], cells: (s) => [h("td", {}, vector(arrays.key(s), qk, Dh)), number(scores[s])]},
      {head: ["q·k", "", `÷ √${Dh}`, ""], cells: (s) => [number(scores[s]), h("td", {}, signedBar(scores[s], most)), number(scaled[s]), h("td", {}, signedBar(scaled[s], most))]},
      {head: ["scaled", "weight", ""], cells: (s) => [number(scaled[s]), h("td", {class: "number weight"}, may[s] ? num(weights[s], 3) : "0"),
        h("td", {}, h("div", {class: "bar"}, may[s] ? h("i", {"aria-hidden": "true", style: `left:0;width:${100 * weights[s]}%;background:${viridis(weights[s]).fill}`}) : masked(s)))]},
      {head: ["weight", "weight × value"], cells: (s) => [h("td", {class: "number weight"}, may[s] ? num(weights[s], 3) : "0"),
        h("td", {}, vector(arrays.value(s).map((x) => x * weights[s]), v, Dv))]},
    ][stage];
    rows = data.tokens.map((token, s) => h("tr", {onpointerenter: () => { if (s !== chosen) choose(s); }},
      h("th", {scope: "row"}, stage ? h("button", {type: "button", onfocus: () => choose(s), onclick: () => choose(s)}, token) : token), ...columns.cells(s)));
    const above = stage > 1 ? [] : [h("tr", {class: "query"}, h("th", {scope: "row"}, data.tokens[query]), h("td", {}, vector(q, qk, Dh)),
      stage ? h("td") : null)];
    const below = stage < 4 ? [] : [h("tr", {class: "output"}, h("th", {scope: "row"}, "output"), h("td"), h("td", {}, vector(arrays.output(query), v, Dv)))];
    const head = h("tr", {}, h("td"), ...columns.head.map((text, i) => text ? h("th", {scope: "col"}, i === 0 && stage < 2 ? "query q, then each key k" : text) : h("td")));
    foot = h("tfoot");
    return h("table", {}, h("thead", {}, head), h("tbody", {}, ...above, ...rows, ...below), foot);
  }

  /** Under the table, in its columns: how the number of the chosen key comes about. */
  function vectors() {
    const [q, k, v, weight] = [arrays.query(query), arrays.key(chosen), arrays.value(chosen), arrays.weights(query)[chosen]];
    const label = (text) => h("th", {scope: "row"}, text);
    if (stage === 1) {
      const products = q.map((x, i) => x * k[i]);
      const scale = largest(all(arrays.query), all(arrays.key));
      return [h("tr", {}, label("q"), h("td", {}, vector(q, scale, Dh)), h("td")),
        h("tr", {}, label("× k"), h("td", {}, vector(k, scale, Dh)), h("td", {class: "number"}, "sum")),
        h("tr", {class: "products"}, label("q × k"), h("td", {}, vector(products, largest(products), Dh)), number(arrays.scores(query)[chosen]))];
    }
    if (stage === 4) {
      const scale = largest(all(arrays.value), all(arrays.output));
      return [h("tr", {class: "value"}, label("value"), h("td"), h("td", {}, vector(v, scale, Dv))),
        h("tr", {}, label("× weight"), h("td", {class: "number"}, num(weight, 3)), h("td", {}, vector(v.map((x) => x * weight), scale, Dv)))];
    }
    return [];
  }

  function formula() {
    const [score, scaled, weight] = ["scores", "scaled", "weights"].map((array) => arrays[array](query)[chosen]);
    const may = data.allowed[query];
    if (stage === 2) return [`${name(chosen)}:  ${digits(score)} ÷ √${Dh} = ${digits(score)} ÷ ${digits(Math.sqrt(Dh))} = ${digits(scaled)}`];
    if (stage !== 3) return [];
    if (!may[chosen]) return [`${name(chosen)} is masked: its weight is exactly 0`];
    const total = arrays.scaled(query).reduce((sum, x, s) => sum + (may[s] ? Math.exp(x) : 0), 0);
    const short = (x) => Number(x.toPrecision(3)).toString();
    return [`${name(chosen)}:  e`, h("sup", {}, digits(scaled)), " ÷ Σ e", h("sup", {}, "scaled"),
      ` = ${short(Math.exp(scaled))} ÷ ${short(total)} = ${num(weight, 3)}`];
  }

  function sentence() {
    const [scores, scaled, weights, may] = [arrays.scores(query), arrays.scaled(query), arrays.weights(query), data.allowed[query]];
    const nothing = !may.some(Boolean);
    if (stage === 0) return `The query of ${name(query)} and ${T} keys, each a vector of ${Dh} numbers.`;
    if (stage === 1) return `Query ${name(query)} times key ${name(chosen)}: ${Dh} products that add up to ${digits(scores[chosen])}.`;
    if (stage === 2) return `Divided by √${Dh} = ${digits(Math.sqrt(Dh))}, the scores lie between ${digits(Math.min(...scaled))} and ${digits(Math.max(...scaled))}.`;
    if (nothing) return `Query ${name(query)} may attend to nothing: all weights are 0, and so is the output.`;
    const peak = weights.indexOf(Math.max(...weights));
    const masked = may.filter((open) => !open).length;
    if (stage === 3) return `Softmax: the weights add up to 1, and ${name(peak)} gets the most, ${num(weights[peak], 3)}.` + (masked ? ` Masked keys (${masked}) get exactly 0.` : "");
    return `Output for ${name(query)}: each value times its weight, added up column by column.`;
  }

  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const go = {ArrowLeft: () => show(stage - 1), ArrowRight: () => show(stage + 1), ArrowUp: () => ask(query - 1), ArrowDown: () => ask(query + 1),
      Home: () => show(0), End: () => show(STAGES.length - 1)}[event.key];
    if (!go) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    const lost = picture.contains(event.target); // its buttons are drawn anew
    go();
    if (lost) picture.focus();
  });
  update(data);
  return {update};
}
