// A text that grows token by token: the most likely next tokens as bars, of one model or of several side by side.
// data: {title, prompt: [token], names: [name of a model], shown: {token: how it is written where that is not itself},
//   nodes: [[path: [appended token], [[[[token, probability]], rest] for each model]]], path, error, turn}

import {h, BARS, bar, probability, root} from "./shared.js";

const STYLE = `
.ck { max-width:980px; }
.ck p { color:var(--ink); font-size:16px; min-height:2.9em; overflow-wrap:anywhere; }
.ck .error { min-height:0; color:var(--accent2); }
.ck .text { margin-top:4px; border:1px solid var(--line); border-radius:6px; padding:8px; font-size:20px; line-height:1.75; word-spacing:4px; max-height:180px; overflow:auto;
  overflow-wrap:anywhere; }
.ck .text span { unicode-bidi:plaintext; white-space:pre-wrap; }
.ck .text .added { border-bottom:3px solid var(--accent); color:var(--accent); font-weight:600; }
.ck .text .end { color:var(--soft); }
.ck .sides { display:grid; grid-template-columns:repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap:16px; margin-top:4px; }
.ck .bars button[aria-disabled=true] { cursor:default; border-color:transparent; background:none; }
${BARS}`;

export function mount(el, data, {emit}) {
  const box = root(el, STYLE, "Next token", data.title);
  const title = h("strong");
  const text = h("div", {class: "text", tabindex: 0, role: "group", "aria-label": "Text so far"});
  const back = h("button", {type: "button", onclick: () => go(path.slice(0, -1))}, "◀ Back");
  const first = h("button", {type: "button", onclick: () => go([])}, "Start again");
  const status = h("p", {"aria-live": "polite"});
  const error = h("p", {class: "error", role: "alert"});
  const sides = h("div", {class: "sides"});
  box.append(title, text, h("div", {class: "row"}, back, first), error, status, sides);
  let path, asked = null, turn = 0; // asked: the path that the kernel is working on
  const nodes = new Map();
  const key = (way) => JSON.stringify(way);
  const shown = (token) => (Object.hasOwn(data.shown, token) ? data.shown[token] : token);
  const quoted = (token) => h("bdi", {}, `“${shown(token)}”`); // else a Hebrew token would pull the number behind it over
  const say = (...parts) => status.replaceChildren(...parts);

  function update(fresh) {
    data = fresh;
    for (const [way, models] of data.nodes) nodes.set(key(way), models);
    title.textContent = data.title;
    if (!path) { // a live view that is shown anew goes on where it was
      [path, turn] = [data.path, data.turn];
      while (!nodes.has(key(path))) path = path.slice(0, -1); // the last answer was a refusal
      draw();
      requestAnimationFrame(toEnd); // a notebook may attach the element only now
    } else if (asked && data.turn === turn && key(data.path) === key(asked)) arrive();
  }

  function arrive() {
    const way = asked;
    asked = null;
    error.textContent = data.error;
    if (data.error) tell();
    else reach(way);
  }

  let focused = null; // the model whose bar was chosen: its first bar gets the focus

  function go(way, side = null) {
    [asked, focused] = [null, side];
    error.textContent = "";
    if (nodes.has(key(way))) reach(way);
    else if (data.live) {
      [asked, turn] = [way, turn + 1];
      say("Asking what comes after ", quoted(way.at(-1)), " …");
      emit({path: way, turn});
    }
  }

  const active = () => box.getRootNode().activeElement;

  /** The focus stays in the widget although its bars are drawn anew, and what was said is not talked over. */
  function reach(way) {
    const here = box.contains(active()); // a late answer does not fetch the focus back from elsewhere
    path = way;
    draw();
    const said = [...status.childNodes];
    const side = focused ?? (active()?.disabled ? 0 : null);
    if (here && side !== null) sides.children[side].querySelector("button").focus({preventScroll: true});
    say(...said);
    toEnd();
  }

  function toEnd() { text.scrollTop = text.scrollHeight; }

  const within = (token) => data.live || nodes.has(key([...path, token]));

  function draw() {
    const models = nodes.get(key(path));
    text.replaceChildren(...[...data.prompt, ...path].flatMap((token, i) =>
      [h("span", {class: i < data.prompt.length ? null : "added"}, shown(token).replaceAll("⏎", "⏎\n")), " "]), h("span", {class: "end", "aria-hidden": "true"}, "…"));
    back.disabled = first.disabled = !path.length;
    sides.replaceChildren(...models.map(([says, rest], m) => h("div", {class: "side"},
      data.names[m] ? h("div", {class: "name"}, data.names[m]) : null,
      h("div", {class: "bars", role: "group", "aria-label": `Next tokens${data.names[m] ? ` of ${data.names[m]}` : ""}`},
        ...says.map(([token, p], i) => h("button", {type: "button", tabindex: i ? -1 : 0, "aria-disabled": within(token) ? null : "true", "data-token": token, "data-p": p,
          title: `${shown(token)}: ${p}`, onclick: () => append(token, m), onfocus: () => point(token, m), onpointerenter: () => point(token, m)},
          h("span", {class: "token"}, shown(token)), bar(p), h("span", {class: "number"}, probability(p)))),
        h("div", {class: "rest", "data-p": rest}, h("span", {class: "token"}, "all others"), bar(rest), h("span", {class: "number"}, probability(rest)))))));
    tell();
  }

  const named = (m) => (data.names[m] ? `${data.names[m]} ` : "");

  function tell() {
    const best = nodes.get(key(path)).flatMap(([[[token, p]]], m) => [`${m ? "; " : ""}${named(m)}`, quoted(token), ` ${probability(p)}`]);
    const after = path.length ? ["After ", quoted(path.at(-1)), ", most"] : ["Most"];
    say(...after, " likely next: ", ...best, `.${ended() ? ` ${END}` : ""}`);
  }

  const END = "The prepared tree ends here: go back, or run the notebook to go on.";
  const ended = () => !nodes.get(key(path)).some(([says]) => says.some(([token]) => within(token)));

  function append(token, m) {
    if (within(token)) go([...path, token], m);
    else if (ended()) say(END);
    else say("Nothing is prepared for ", quoted(token), ": choose another token, or run the notebook.");
  }

  function point(token, m) {
    if (asked) return;
    sides.querySelectorAll("button").forEach((button) => button.classList.toggle("same", button.dataset.token === token));
    sides.children[m].querySelectorAll("button").forEach((button) => { button.tabIndex = button.dataset.token === token ? 0 : -1; });
    const each = nodes.get(key(path)).map(([says], i) => {
      const found = says.find(([other]) => other === token);
      return named(i) + (found ? probability(found[1]) : "has no bar for it");
    });
    say(quoted(token), `: ${each.join(", ")}.${ended() ? ` ${END}` : ""}`);
  }

  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Backspace") {
      event.preventDefault();
      event.stopPropagation();
      const m = [...sides.children].findIndex((side) => side.contains(event.target));
      if (path.length) go(path.slice(0, -1), m < 0 ? null : m);
      return;
    }
    const m = [...sides.children].findIndex((side) => side.contains(event.target));
    if (m < 0 || !["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    const bars = (side) => [...sides.children[side].querySelectorAll("button")];
    const i = Math.max(0, bars(m).indexOf(event.target.closest("button")));
    const other = Math.max(0, Math.min(sides.children.length - 1, m + ({ArrowLeft: -1, ArrowRight: 1}[event.key] ?? 0)));
    const goal = {ArrowUp: i - 1, ArrowDown: i + 1, Home: 0, End: bars(m).length - 1}[event.key] ?? i;
    bars(other)[Math.max(0, Math.min(bars(other).length - 1, goal))].focus();
  });
  update(data);
  return {update};
}
