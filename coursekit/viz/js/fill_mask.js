// A text with [MASK] in it: the likeliest tokens of each place as bars, of one model or of several side by side.
// data: {title, mask: "[MASK]", shown: {token: how it is written where that is not itself}, chosen, examples: [text with a name],
//   answer?: text, asked?: the message that it answers, error?, live?}
// A text is {name, tokens, names: [name of a model], places: for each mask [[[[token, probability]], rest] for each model]}.
// Live it asks with {tokens, turn} or, for what was typed, {source, turn}.

import {h, field, BARS, bar, probability, root} from "./shared.js";

const STYLE = `
.ck { max-width:980px; }
.ck p { color:var(--ink); font-size:16px; min-height:2.9em; overflow-wrap:anywhere; }
.ck .error { min-height:0; color:var(--accent2); }
.ck .row button[aria-pressed=true] { border-color:var(--accent); color:var(--accent); font-weight:700; box-shadow:inset 0 0 0 1px var(--accent); }
.ck .text { margin:6px 0; border:1px solid var(--line); border-radius:6px; padding:6px; font-size:20px; line-height:1.9; max-height:230px; overflow:auto;
  overflow-wrap:anywhere; }
.ck .text span, .ck .text button { display:inline-block; max-width:100%; padding:0 5px; min-width:0; min-height:0; line-height:1.5; border:1px solid transparent;
  border-radius:5px; background:none; overflow-wrap:anywhere; unicode-bidi:plaintext; white-space:pre-wrap; text-align:start; }
.ck .text .word:hover { border-color:var(--line); background:var(--field); }
.ck .text .filled { border-bottom:3px solid var(--accent); color:var(--accent); font-weight:600; }
.ck .text .mask { border:2px dashed var(--accent2); color:var(--accent2); font-weight:600; }
.ck .text .mask.filled { border:1px solid transparent; border-bottom:3px solid var(--accent); color:var(--accent); }
.ck .text sub { font-size:13px; line-height:1; padding-left:3px; }
.ck .places { display:grid; grid-template-columns:repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap:16px; margin-top:4px; }
.ck .places.wide { grid-template-columns:minmax(0, 1fr); }
.ck .place { min-width:0; }
.ck .place.many { border-top:1px solid var(--line); padding-top:6px; }
.ck .sides { display:grid; grid-template-columns:repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap:16px; }
.ck .which { font-size:17px; font-weight:600; color:var(--accent2); margin-bottom:2px; }
.ck .bars button[aria-pressed=true] { border-color:var(--accent); color:var(--accent); font-weight:700; box-shadow:inset 0 0 0 1px var(--accent); }
${BARS}`;

export function mount(el, data, {emit}) {
  const box = root(el, STYLE, "Fill mask", data.title);
  const title = h("strong");
  const names = h("div", {class: "row", role: "group", "aria-label": "Texts"});
  const typed = data.live ? field("Text", "Guess", "", send) : null;
  const input = typed?.querySelector("input");
  const back = data.live ? h("button", {type: "button", onclick: goBack}, "◀ Back") : null;
  typed?.append(back);
  const error = h("p", {class: "error", role: "alert"});
  const text = h("div", {class: "text", role: "group", "aria-label": "Text"});
  const status = h("p", {"aria-live": "polite"});
  const places = h("div", {class: "places"});
  box.append(...[title, names, typed, error, text, status, places].filter(Boolean));
  let now; // {base: the text that the bars belong to, fills: Map of its places -> token, added: Set of places in the text, source?: as typed}
  let asked = null, turn = 0, after; // what the kernel works on; what is done when it has answered
  const past = [];
  const known = new Map(); // tokens -> text
  const read = new Map(); // what was typed -> its tokens
  let shown = {}, examples;
  const key = (tokens) => JSON.stringify(tokens);
  const seen = (token) => (Object.hasOwn(shown, token) ? shown[token] : token);
  const quoted = (token) => h("bdi", {}, `“${seen(token)}”`); // else a Hebrew token would pull the number behind it over
  const say = (...parts) => status.replaceChildren(...parts);
  const active = () => box.getRootNode().activeElement;
  const isMask = (token) => token === data.mask;

  function update(fresh) {
    data = fresh;
    shown = {...shown, ...data.shown};
    if (data.answer) known.set(key(data.answer.tokens), data.answer);
    title.textContent = data.title;
    if (!now) { // a live view that is shown anew goes on where it was
      turn = data.asked?.turn ?? 0;
      examples = data.examples;
      for (const each of examples) if (!known.has(key(each.tokens))) known.set(key(each.tokens), each);
      names.hidden = examples.length < 2;
      names.append(...examples.map((each) => h("button", {type: "button", onclick: () => start(each)}, each.name)));
      now = fresh.answer ? state(data.answer) : state(examples[data.chosen]);
      draw();
      tell();
    } else if (asked && key(data.asked) === key(asked)) arrive();
  }

  const state = (base, added = new Set()) => ({base, fills: new Map(), added});

  function start(example) {
    withdraw();
    to(state(example));
  }

  function withdraw() {
    asked = null;
    error.textContent = "";
  }

  /** Show something else; `focus` says where the focus goes if it was here. */
  function to(next, focus = null, message = null) {
    past.push(now);
    now = next;
    redraw(focus);
    tell(message);
  }

  function redraw(focus) {
    const here = box.contains(active()); // a late answer does not fetch the focus back from elsewhere
    draw();
    if (here && focus && active() !== input) focus()?.focus({preventScroll: true});
  }

  function goBack() {
    withdraw();
    now = past.pop();
    redraw(() => (back.disabled ? text.querySelector("button") : null));
    tell();
  }

  function ask(message, then) {
    withdraw();
    [asked, after] = [{...message, turn: ++turn}, then];
    say("Asking …");
    emit(asked);
  }

  function arrive() {
    const message = asked;
    asked = null;
    error.textContent = data.error;
    if (data.error) return tell();
    if (message.source !== undefined) read.set(message.source, data.answer.tokens);
    after(data.answer);
  }

  /** The text of these tokens: shown where it is known, else asked for. */
  function get(tokens, then) {
    withdraw();
    if (known.has(key(tokens))) then(known.get(key(tokens)));
    else if (tokens.some(isMask)) ask({tokens}, then);
    else then({tokens, names: [], places: []});
  }

  function send(source) { // what has been answered is not asked again
    const then = (example) => to({...state(example), source});
    if (read.has(source)) get(read.get(source), then);
    else ask({source: source.replace(/\[mask\]/gi, data.mask)}, then);
  }

  /** The tokens as they stand there, with what has been filled in. */
  function tokensNow() {
    let m = -1;
    return now.base.tokens.map((token) => (isMask(token) ? now.fills.get(++m) ?? token : token));
  }

  const placeOf = (i) => now.base.tokens.slice(0, i).filter(isMask).length;
  const side = (m, model) => places.children[m]?.querySelectorAll(".side")[model];

  function maskAt(i) {
    const tokens = tokensNow();
    const was = tokens[i];
    const m = tokens.slice(0, i).filter(isMask).length;
    const added = new Set([...now.added, ...filledIn()]);
    get(tokens.with(i, data.mask), (example) => to(state(example, added), () => side(m, 0).querySelector("button"), () => ["Here stood ", ...each(m, was)]));
  }

  const filledIn = () => now.base.tokens.flatMap((token, i) => (isMask(token) && now.fills.has(placeOf(i)) ? [i] : []));

  function fill(m, token) {
    withdraw();
    const fills = new Map(now.fills);
    if (fills.get(m) === token) fills.delete(m);
    else fills.set(m, token);
    const before = now;
    now = {...now, fills};
    if (data.live && fills.has(m) && fills.size < now.base.places.length) { // the other places are another question now
      const [tokens, added] = [tokensNow(), new Set([...now.added, ...filledIn()])];
      const i = filledIn()[0];
      now = before;
      get(tokens, (example) => to(state(example, added), () => text.querySelector(`[data-at="${i}"]`)));
      return;
    }
    drawText();
    if (fills.has(m)) say(quoted(token), ` stands in ${place(m)} now. Click it again to take it out.`);
    else tell();
  }

  function empty(m) {
    withdraw();
    now = {...now, fills: new Map([...now.fills].filter(([other]) => other !== m))};
    drawText();
    text.querySelector(`[data-place="${m}"]`).focus({preventScroll: true});
    tell();
  }

  const several = () => now.base.places.length > 1;
  const place = (m) => `${data.mask}${several() ? ` ${m + 1}` : ""}`;

  function draw() {
    if (back) back.disabled = !past.length;
    [...names.children].forEach((button, k) => button.setAttribute("aria-pressed", examples[k] === now.base));
    drawBars();
    drawText();
  }

  /** The text, and in the bars what of them is filled in. */
  function drawText() {
    const {base, fills, added} = now;
    const row = base.tokens.map((token, i) => {
      if (isMask(token)) {
        const m = placeOf(i);
        const filled = fills.get(m);
        return h("button", {type: "button", class: `mask${filled === undefined ? "" : " filled"}`, "data-at": i, "data-place": m,
          title: filled === undefined ? "Go to its bars" : "Take it out again", onclick: () => (filled === undefined ? side(m, 0).querySelector("button").focus() : empty(m))},
          filled === undefined ? data.mask : seen(filled), several() ? h("sub", {}, m + 1) : null);
      }
      const kind = added.has(i) ? "filled" : null;
      return data.live ? h("button", {type: "button", class: `word ${kind ?? ""}`, "data-at": i, title: "Mask it", onclick: () => maskAt(i)}, seen(token))
        : h("span", {class: kind}, seen(token));
    });
    text.replaceChildren(...row.flatMap((token) => [token, " "]));
    [...text.querySelectorAll("button")].forEach((button, n) => { button.tabIndex = n ? -1 : 0; }); // the arrow keys move in it
    [...places.children].forEach((group, m) => group.querySelectorAll("button").forEach((bar) => bar.setAttribute("aria-pressed", fills.get(m) === bar.dataset.token)));
    if (input && active() !== input) {
      const tokens = tokensNow();
      input.value = now.source !== undefined && !now.fills.size ? now.source : tokens.join(" ").replaceAll(" ##", ""); // what was typed stays
      read.set(input.value, tokens);
    }
  }

  function drawBars() {
    const {base} = now;
    places.className = `places${base.names.length > 1 ? " wide" : ""}`;
    places.replaceChildren(...base.places.map((models, m) => h("div", {class: `place${several() ? " many" : ""}`},
      several() ? h("div", {class: "which"}, place(m)) : null,
      h("div", {class: "sides"}, ...models.map(([says, rest], model) => h("div", {class: "side"},
        base.names[model] ? h("div", {class: "name"}, base.names[model]) : null,
        h("div", {class: "bars", role: "group", "aria-label": `Likeliest in place of ${place(m)}${base.names[model] ? `, ${base.names[model]}` : ""}`},
          ...says.map(([token, p], i) => h("button", {type: "button", tabindex: i ? -1 : 0, "data-token": token, "data-p": p,
            title: `${seen(token)}: ${p}`, onclick: () => fill(m, token), onfocus: () => point(m, model, token), onpointermove: () => point(m, model, token)},
            h("span", {class: "token"}, seen(token)), bar(p), h("span", {class: "number"}, probability(p)))),
          h("div", {class: "rest", "data-p": rest}, h("span", {class: "token"}, "all others"), bar(rest), h("span", {class: "number"}, probability(rest))))))))));
  }

  const named = (model) => (now.base.names[model] ? `${now.base.names[model]} ` : "");

  /** What each model says of a token: parts of a sentence. */
  function each(m, token) {
    const said = now.base.places[m].map(([says], model) => {
      const found = says.find(([other]) => other === token);
      return named(model) + (found ? probability(found[1]) : named(model) ? "has no bar for it" : "it has no bar of its own");
    });
    return [quoted(token), `${several() ? ` as ${place(m)}` : ""}: ${said.join(", ")}.`];
  }

  function tell(message = null) {
    if (message) return say(...message());
    if (!now.base.places.length) return say("Nothing is masked here: click a word to mask it.");
    const best = now.base.places.flatMap((models, m) => [m ? "; " : "", several() ? `${place(m)}: ` : "",
      ...models.flatMap(([[[token, p]]], model) => [model ? ", " : "", named(model), quoted(token), ` ${probability(p)}`])]);
    say("Likeliest: ", ...best, `. Click a bar to fill it in${data.live ? ", a word to mask it" : ""}.`);
  }

  function point(m, model, token) {
    if (asked) return;
    const sides = [...places.children[m].querySelectorAll(".side")];
    places.querySelectorAll(".same").forEach((button) => button.classList.remove("same"));
    for (const other of sides) other.querySelectorAll("button").forEach((button) => button.classList.toggle("same", sides.length > 1 && button.dataset.token === token));
    sides[model].querySelectorAll("button").forEach((button) => { button.tabIndex = button.dataset.token === token ? 0 : -1; });
    say(...each(m, token));
  }

  box.addEventListener("keydown", (event) => {
    if (event.target === input || event.ctrlKey || event.metaKey || event.altKey) return;
    const move = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [-Infinity, 0], End: [Infinity, 0]}[event.key];
    if (!move) return;
    const clip = (i, list) => list[Math.max(0, Math.min(list.length - 1, i))];
    const words = [...text.querySelectorAll("button")];
    const sides = [...places.querySelectorAll(".side")];
    const at = sides.findIndex((other) => other.contains(event.target));
    let goal;
    if (words.includes(event.target)) goal = clip(words.indexOf(event.target) + move[0] + move[1], words);
    else if (at >= 0) {
      const bars = (other) => [...other.querySelectorAll("button")];
      const i = Math.max(0, bars(sides[at]).indexOf(event.target.closest("button")));
      goal = move[1] ? clip(i, bars(clip(at + move[1], sides))) : clip(i + move[0], bars(sides[at]));
    } else return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    if (words.includes(goal)) words.forEach((button) => { button.tabIndex = button === goal ? 0 : -1; });
    goal.focus();
  });
  update(data);
  return {update};
}
