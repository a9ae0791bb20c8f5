// What temperature, top-k and top-p do to the next token, at each place of a written text.
// data: {title, k, temperatures, ps, ks: where the sliders can stand, total: tokens of the vocabulary, text,
//   written?: how many tokens of the text are of the last question, turn?: the question, done?: it has ended, error?, live?}
// A text is {prompt: [token], words: [token], places: [place]}. A place is {ids, logits: of the likeliest tokens, token: what
// was written, rank, logit: its place among all and its logit, others}; ids and token are numbers of words. others are the
// tokens that have no logit of their own, or null: for each temperature above 0 and each p, as generate.py says,
// (how many the nucleus takes in, ln sum w, sum w x / sum w), x = (logit - largest) / temperature, w = exp(x).
// Live it asks with {source, temperature, k, p, turn}, for more with {turn}, and ends with {stop: true, turn}.

import {unpack, num, h, field, BARS, bar, probability, root} from "./shared.js";

const STYLE = `
${BARS}
.ck { max-width:980px; }
.ck p { color:var(--ink); font-size:16px; overflow-wrap:anywhere; }
.ck p[aria-live] { min-height:2.9em; }
.ck .error { color:var(--accent2); }
.ck .figures b { font-variant-numeric:tabular-nums; white-space:nowrap; }
.ck .text { margin:6px 0; border:1px solid var(--line); border-radius:6px; padding:6px; font-size:20px; line-height:1.8; max-height:170px; overflow:auto;
  overflow-wrap:anywhere; position:relative; }
.ck .text span, .ck .text button { display:inline-block; max-width:100%; padding:0 4px; min-width:0; min-height:0; line-height:1.5; border:1px solid transparent;
  border-radius:5px; background:none; overflow-wrap:anywhere; unicode-bidi:plaintext; white-space:pre-wrap; text-align:start; }
.ck .text button { color:var(--accent); font-weight:600; border-bottom:3px solid var(--accent); border-radius:5px 5px 0 0; }
.ck .text button:hover { background:var(--field); }
.ck .text button[aria-pressed=true] { background:var(--accent2); border-color:var(--accent2); color:#fff; }
.ck[data-dark] .text button[aria-pressed=true] { color:#000; }
.ck .text .later { font-weight:400; border-bottom-color:var(--line); }
.ck .sliders { display:grid; grid-template-columns:repeat(auto-fit, minmax(min(100%, 250px), 1fr)); gap:2px 20px; margin:8px 0; }
.ck .sliders label { display:grid; grid-template-columns:1fr auto; font-size:16px; gap:0 8px; }
.ck .sliders input { grid-column:1 / -1; width:100%; min-height:26px; margin:0; }
.ck .sliders input:focus-visible { outline-offset:-3px; } /* its name stands close above */
.ck .sliders output { font-weight:600; font-variant-numeric:tabular-nums; }
.ck .seed input { width:9ch; background:var(--field); border:1px solid var(--line); border-radius:6px; padding:3px 8px; min-height:30px; }
.ck table { width:100%; table-layout:fixed; border-collapse:collapse; font-size:16px; margin-top:4px; }
.ck th { text-align:start; font-weight:400; }
.ck th, .ck td { padding:2px 4px; border:0; height:30px; background:none; }
.ck thead th { font-size:14px; color:var(--soft); border-bottom:1px solid var(--line); vertical-align:bottom; overflow-wrap:anywhere; }
.ck thead .number { text-align:right; }
.ck col.word { width:25%; }
.ck col.figure { width:76px; }
.ck tbody th .token { display:block; }
.ck .written .token { color:var(--accent2); font-weight:700; }
.ck .bar { display:block; height:10px; }
.ck .bar + .bar { border-top:0; }
.ck .before i, .ck .key.before { background:none; border:2px solid var(--soft); border-width:2px 2px 2px 0; }
.ck .before i[style="width:0%"] { border:0; }
.ck .key { display:inline-block; width:20px; height:9px; margin-right:4px; border-radius:1px; }
.ck .key.before { border-width:2px; }
.ck .key.after { background:var(--accent); }
.ck .cut, .ck .cut .token { color:var(--soft); }
.ck .cut .token { text-decoration:line-through; }
.ck .others th { color:var(--soft); }
.ck .others .after i { background:repeating-linear-gradient(45deg, var(--soft) 0 3px, transparent 3px 7px); }
@media (max-width:520px) {
  .ck p[aria-live], .ck .figures { min-height:4.4em; }
  .ck table { font-size:15px; } .ck thead th { font-size:13px; } .ck .key { display:none; }
  .ck col.figure { width:58px; } .ck col.word { width:24%; }
  .ck th, .ck td { padding:2px; }
}
`;

const TOPS = [0.02, 0.05, 0.1, 0.2, 0.5, 1]; // what the longest bar can stand for

/**
 * The probabilities of a place after temperature (number t of the list), top-k (k = Infinity: none) and top-p (number j of
 * its list, the last: none): those of the tokens that have logits; rest, of all others; left: how many can be drawn; sum:
 * what these had before the cut; entropy: in nats; of(logit, rank): the probability of any token.
 */
export function changed({logits, others}, t, k, j, {temperatures, ps, total}) {
  const n = logits.length;
  const temperature = temperatures[t];
  if (temperature === 0) { // of equal ones the first of the vocabulary, as argmax takes it: it stands last
    const best = logits.findLastIndex((logit) => logit === logits[0]);
    return {share: Float64Array.from(logits, (_, i) => (i === best ? 1 : 0)), rest: 0, left: 1, sum: 1, entropy: 0, of: (_, rank) => (rank === best ? 1 : 0)};
  }
  const x = Float64Array.from(logits, (logit) => (logit - logits[0]) / temperature);
  const w = x.map(Math.exp);
  const row = (p) => { // [how many, sum of w, sum of w x] of the others
    const [count, log, mean] = others ? others.slice(3 * ((t - 1) * ps.length + p)) : [0, -Infinity, 0];
    const sum = count > 0 ? Math.exp(log) : 0;
    return [count, sum, sum * mean];
  };
  const all = row(ps.length - 1);
  const before = w.reduce((sum, each) => sum + each, all[1]);
  let inside = n, rest = all;
  if (k < total) {
    const least = logits[Math.min(k, n) - 1];
    while (logits[inside - 1] < least) inside -= 1; // what equals the k-th stays
    rest = [0, 0, 0];
  }
  if (j < ps.length - 1) {
    const whole = w.subarray(0, inside).reduce((sum, each) => sum + each, rest[1]);
    const nucleus = rest[0] ? row(j) : rest;
    if (nucleus[0] === 0) { // it ends among the tokens that have logits: the least likely are left out first
      let out = rest[1];
      while (inside > 1 && (out += w[inside - 1]) / whole <= 1 - ps[j]) inside -= 1;
    }
    rest = nucleus;
  }
  let [after, energy] = [rest[1], rest[2]];
  for (let i = 0; i < inside; i++) { after += w[i]; energy += w[i] * x[i]; }
  const left = inside + rest[0];
  return {share: w.map((each, i) => (i < inside ? each / after : 0)), rest: rest[1] / after, left, sum: after / before,
    entropy: Math.max(0, Math.log(after) - energy / after),
    of: (logit, rank) => (rank < (rest[0] ? left : inside) ? Math.exp((logit - logits[0]) / temperature) / after : 0)};
}

/** Numbers above 0 and below 1, the same ones for the same seed (Park and Miller, 1988: x = 48271 x mod 2^31 - 1). */
export function randoms(seed) {
  let x = seed;
  const next = () => { x = (x * 48271) % 2147483647; return x / 2147483647; };
  for (let i = 0; i < 10; i++) next(); // the first ones are small where the seed is
  return next;
}

/** Number of the token that is drawn with a number u in 0..1; the number of tokens that have logits for one of the others. */
export function draw({share, rest}, u) {
  let sum = 0;
  for (let i = 0; i < share.length; i++) if ((sum += share[i]) > u) return i;
  return rest > 0 ? share.length : share.findLastIndex((each) => each > 0); // what rounding leaves is the last one's
}

export function mount(el, data, {emit}) {
  const box = root(el, STYLE, "Generate", data.title);
  const title = h("strong");
  const typed = data.live ? field("Text", "Write", "", write) : null;
  const input = typed?.querySelector("input");
  const end = data.live ? h("button", {type: "button", disabled: "", onclick: stop}, "Stop") : null;
  typed?.append(end);
  const error = h("p", {class: "error", role: "alert"});
  const text = h("div", {class: "text", role: "group", "aria-label": "Text, with its written tokens"});
  const back = h("button", {type: "button", onclick: () => step(at - 1)}, "◀ Back");
  const on = h("button", {type: "button", onclick: () => step(at + 1)}, "Next ▶");
  const status = h("p", {"aria-live": "polite"});
  const figures = h("p", {class: "figures", role: "status"});
  const warmth = slider("Temperature", data.temperatures.length, data.temperatures.indexOf(1), (i) => (data.temperatures[i] === 0 ? "0, the likeliest" : num(data.temperatures[i], 1)));
  const most = slider("Top-k", data.ks.length + 1, data.ks.length, (i) => (i < data.ks.length ? `${data.ks[i]}` : "off"));
  const nucleus = slider("Top-p", data.ps.length, data.ps.length - 1, (i) => (i < data.ps.length - 1 ? num(data.ps[i], 2) : "off"));
  const seed = h("input", {type: "number", min: 1, max: 2147483646, value: 1, "aria-label": "Seed", oninput: clear, onchange: () => { seed.value = String(seedUsed()); }});
  const table = h("table", {"aria-label": "Likeliest next tokens"});
  const many = (n) => h("button", {type: "button", onclick: () => drawn(n)}, n > 1 ? `Draw ${whole(n)}` : "Draw one");
  box.append(...[title, typed, error, text, h("div", {class: "row"}, back, on), status,
    h("div", {class: "sliders"}, warmth.label, most.label, nucleus.label), figures, table,
    h("div", {class: "row"}, many(1), many(1000), h("label", {class: "seed"}, "Seed: ", seed),
      h("button", {type: "button", onclick: clear}, "Clear"))].filter(Boolean));
  let shown, at = 0; // the text, the number of its place
  let asked = null, turn = 0, waiting = false, follow = true, source = ""; // asked: the turn that the kernel works on; waiting: nothing of it has come; follow: show the newest token
  let now, plain, next, counts, total; // probabilities after and before; the numbers to draw with; what was drawn

  function whole(n) { return n.toLocaleString("en-US"); }
  const quoted = (token) => h("bdi", {}, `“${token}”`); // else a Hebrew token would pull the number behind it over
  const active = () => box.getRootNode().activeElement;

  function slider(name, stops, start, read) {
    const output = h("output", {"aria-hidden": "true"});
    const range = h("input", {type: "range", min: 0, max: stops - 1, step: 1, value: start, "aria-label": name, oninput: clear});
    const show = () => { output.textContent = read(Number(range.value)); range.setAttribute("aria-valuetext", output.textContent); };
    return {label: h("label", {}, name, output, range), show, value: () => Number(range.value)};
  }

  const settings = () => [warmth.value(), data.ks[most.value()] ?? Infinity, nucleus.value()];

  function update(fresh) {
    data = fresh;
    title.textContent = data.title;
    if (!shown) { // a live view that is shown anew goes on where it was
      turn = data.turn ?? 0;
      open();
    } else if (asked !== null && data.turn === asked) arrive();
  }

  function open() {
    shown = {...data.text, places: data.text.places.map((place) => ({...place, logits: unpack(place.logits).values, others: place.others && unpack(place.others).values}))};
    at = Math.min(at, shown.places.length - 1);
    if (follow && asked !== null) at = shown.places.length - 1;
    drawText();
    clear();
  }

  // --- live -----------------------------------------------------------------------------------------------------

  function write(typedText) {
    const [t, k, j] = settings();
    [source, follow, waiting] = [typedText, true, true];
    error.textContent = "";
    ask({source, temperature: data.temperatures[t], k: k === Infinity ? null : k, p: j < data.ps.length - 1 ? data.ps[j] : null});
    status.replaceChildren("Writing …");
  }

  function ask(message) {
    asked = ++turn;
    end.disabled = false;
    emit({...message, turn});
  }

  function stop() { // what is on its way comes with the answer to this
    ask({stop: true});
    end.disabled = true;
    if (box.contains(active()) || active() === null) input.focus({preventScroll: true});
  }

  function arrive() {
    waiting = false;
    error.textContent = data.error;
    if (data.written) open();
    if (data.done) {
      const here = active() === end;
      [asked, end.disabled] = [null, true];
      if (here) input.focus({preventScroll: true});
      tell();
    } else ask({});
  }

  // --- the text and its places ----------------------------------------------------------------------------------

  function drawText() {
    const focused = text.contains(active());
    const word = (place, i) => h("button", {type: "button", class: i > at ? "later" : null, "aria-pressed": i === at, tabindex: i === at ? 0 : -1,
      onclick: () => step(i)}, shown.words[place.token]);
    const row = [...shown.prompt.map((token) => h("span", {}, token)), ...shown.places.map(word)];
    text.replaceChildren(...row.flatMap((token) => [token, token.textContent.endsWith("⏎") ? h("br") : " "]));
    const here = text.querySelector("[aria-pressed=true]");
    if (focused) here.focus({preventScroll: true});
    if (here.offsetTop < text.scrollTop || here.offsetTop + here.offsetHeight > text.scrollTop + text.clientHeight) text.scrollTop = here.offsetTop - 40;
    const gone = [[back, at === 0, on], [on, at === shown.places.length - 1, back]];
    for (const [button, of, other] of gone) {
      const lost = of && active() === button;
      button.disabled = of;
      if (lost && !other.disabled) other.focus({preventScroll: true});
    }
  }

  function step(i) {
    const goal = Math.max(0, Math.min(shown.places.length - 1, i));
    follow = goal === shown.places.length - 1;
    if (goal === at) return;
    at = goal;
    drawText();
    clear();
  }

  // --- the probabilities ----------------------------------------------------------------------------------------

  const isCut = (rank) => rank >= now.left && data.temperatures[warmth.value()] > 0;
  const after = (p, rank) => (isCut(rank) ? "cut" : probability(p));

  function tell() {
    const {token, rank, logit} = shown.places[at];
    const before = at ? shown.words[shown.places[at - 1].token] : shown.prompt.at(-1);
    status.replaceChildren(`Place ${at + 1} of ${shown.places.length}, `, ...(before === undefined ? ["at the start"] : ["after ", quoted(before)]), ": ", quoted(shown.words[token]),
      ` was written here, rank ${whole(rank + 1)}, ${probability(plain.of(logit, rank))} before, ${after(now.of(logit, rank), rank)} after.`);
  }

  /** What stands in the field, rounded down and kept in range, or 1; the field shows it when one has typed. */
  function seedUsed() {
    return Math.min(2147483646, Math.max(1, Math.floor(Number(seed.value)) || 1));
  }

  /** All numbers anew, and the line about the place; what was drawn was drawn from others. */
  function clear() {
    now = changed(shown.places[at], ...settings(), data);
    plain = changed(shown.places[at], data.temperatures.indexOf(1), Infinity, data.ps.length - 1, data);
    if (!waiting) tell();
    for (const each of [warmth, most, nucleus]) each.show();
    next = randoms(seedUsed());
    [counts, total] = [new Map(), 0];
    figures.replaceChildren("Left: ", h("b", {}, `${whole(now.left)} of ${whole(data.total)} tokens`), " with ", h("b", {}, num(now.sum, 3)),
      " of the probability; entropy ", h("b", {}, `${num(now.entropy, 3)} nats`), `, before ${num(plain.entropy, 3)}.`);
    drawTable();
  }

  function drawn(n) {
    let last;
    for (let i = 0; i < n; i++) {
      last = draw(now, next());
      counts.set(last, (counts.get(last) ?? 0) + 1);
    }
    total += n;
    const {ids} = shown.places[at];
    status.replaceChildren(`Drawn: ${whole(total)} ${total > 1 ? "tokens, the last" : "token"}: `, ...(last < ids.length ? [quoted(shown.words[ids[last]])] : ["one of all others"]), ".");
    drawTable();
  }

  function drawTable() {
    const place = shown.places[at];
    const n = Math.min(data.k, place.ids.length);
    const beyond = ({share, rest}) => share.subarray(n).reduce((sum, p) => sum + p, rest);
    const rows = Array.from({length: n}, (_, i) => [shown.words[place.ids[i]], plain.share[i], now.share[i], counts.get(i) ?? 0, i === place.rank ? "written" : ""]);
    if (n < data.total) {
      const rest = rows.reduce((sum, row) => sum - row[3], total);
      rows.push(["all others", beyond(plain), beyond(now), rest, "others"]);
    }
    const longest = Math.max(...rows.flatMap(([, before, p]) => [before, p]));
    const top = TOPS.find((each) => each >= longest - 1e-6) ?? 1;
    const sized = (p, kind) => { const el = bar(Math.min(1, p / top)); el.classList.add(kind); return el; };
    const column = (kind) => h("col", {class: kind});
    const head = (...parts) => h("th", {scope: "col", class: "number"}, ...parts);
    table.replaceChildren(
      h("colgroup", {}, ...["word", "", "figure", "figure", "figure"].map(column)),
      h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "next token"), h("th", {scope: "col"}, `bars: 0 to ${top}`), head(h("i", {class: "key before"}), "before"),
        head(h("i", {class: "key after"}), "after"), head(total ? `of ${whole(total)}` : "drawn"))),
      h("tbody", {}, ...rows.map(([token, before, p, count, kind], rank) => h("tr", {class: `${kind} ${isCut(rank) ? "cut" : ""}`, "data-before": before, "data-after": p},
        h("th", {scope: "row", title: token}, h("span", {class: "token"}, token)), h("td", {}, sized(before, "before"), sized(p, "after")),
        h("td", {class: "number"}, probability(before)), h("td", {class: "number"}, after(p, rank)), h("td", {class: "number"}, total ? whole(count) : "–")))));
  }

  box.addEventListener("keydown", (event) => {
    const here = event.target === box || text.contains(event.target) || event.target === back || event.target === on;
    if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
    const goal = {ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: shown.places.length - 1}[event.key];
    if (goal === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    step(goal);
  });
  update(data);
  return {update};
}
