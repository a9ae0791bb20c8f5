// How a text falls into tokens: coloured pieces, their ids and places, how many there are.
// data: {title, chosen, examples: [{name, text, characters, bytes, tokenizers: [{name, count, pieces}]}], error?}
// A piece is [shown, written, id, start, end, kind, whole]; it stands for text[start:end]. Its kind:
//   text     shown are these characters; `written` is what the vocabulary writes for them
//   bytes    shares a character with its neighbours: shown are its bytes; the first of them has what they are together
//   shared   the same where the bytes are not known: shown as it is written
//   special  shown as it is written; `whole` is the text in its place
//   empty    stands for no characters
//   gap      no token: the text between the tokens

import {num, h, root} from "./shared.js";

const STYLE = `
.ck { max-width:980px; }
.ck p { color:var(--ink); font-size:16px; min-height:2.9em; overflow-wrap:anywhere; }
.ck .error { min-height:0; color:var(--accent2); }
.ck { --tint0:#cfe3f5; --tint1:#fde3c0; --tint2:#cdebdd; --tint3:#f3d3e6; }
.ck[data-dark] { --tint0:#1d3f5c; --tint1:#5a3d12; --tint2:#1a4a38; --tint3:#54304a; }
.ck .row button[aria-pressed=true] { border-color:var(--accent); color:var(--accent); font-weight:700;
  box-shadow:inset 0 0 0 1px var(--accent); }
.ck textarea { font:inherit; font-size:16px; color:var(--ink); background:var(--field); border:1px solid var(--line); border-radius:6px;
  padding:3px 8px; flex:1 1 auto; width:30ch; min-width:0; min-height:56px; resize:vertical; }
.ck .sides { display:grid; grid-template-columns:repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap:16px; margin-top:4px; }
.ck .side { min-width:0; }
.ck .name { font-size:17px; font-weight:600; overflow-wrap:anywhere; }
.ck .counts { color:var(--soft); font-size:15px; font-variant-numeric:tabular-nums; margin-bottom:4px; }
.ck .counts b { color:var(--ink); }
.ck .pieces { position:relative; max-height:430px; overflow:auto; border:1px solid var(--line); border-radius:6px; padding:6px; font-size:18px; line-height:1.9; overflow-wrap:anywhere; }
.ck .piece { background:var(--tint); border-radius:4px; padding:2px 3px; margin:0 1px; cursor:default; unicode-bidi:plaintext;
  -webkit-box-decoration-break:clone; box-decoration-break:clone; }
.ck .gap { color:var(--soft); unicode-bidi:plaintext; white-space:pre-wrap; }
.ck .bytes { font-family:ui-monospace, monospace; font-size:15px; white-space:nowrap; text-decoration:underline; text-underline-offset:3px; }
.ck .special, .ck .empty { border:1px dashed var(--ink); font-weight:600; }
.ck .split { border:1px solid var(--soft); border-radius:6px; padding:3px 2px; -webkit-box-decoration-break:clone; box-decoration-break:clone; }
.ck .split i { font-style:normal; padding:0 3px; }
.ck .same { outline:2px dashed var(--accent2); outline-offset:0; }
.ck .piece[aria-selected=true] { outline:3px solid var(--accent); outline-offset:0; }
`;

export function mount(el, data, {emit}) {
  const box = root(el, STYLE, "Token pieces", data.title);
  const title = h("strong");
  const status = h("p", {"aria-live": "polite"});
  const error = h("p", {class: "error", role: "alert"});
  const names = h("div", {class: "row", role: "group", "aria-label": "Texts"});
  const sides = h("div", {class: "sides"});
  const typed = h("textarea", {rows: 2, "aria-label": "Text", onkeydown: (e) => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); } }});
  const refused = new Map(); // text -> why it was refused
  let sent = "";
  function send() { // what has been answered is not asked again
    const known = data.examples.findIndex(({text}) => text === typed.value);
    error.textContent = refused.get(typed.value) ?? "";
    if (known >= 0) show(known);
    else if (!refused.has(typed.value)) emit({source: sent = typed.value});
  }
  box.append(...[title, names, data.live ? h("div", {class: "row"}, h("label", {class: "typed"}, "Text:", typed),
    h("button", {type: "button", onclick: send}, "Read")) : null, error, status, sides].filter(Boolean));
  let example, chosen; // chosen: [tokenizer, piece]

  function update(fresh) {
    error.textContent = fresh.error ?? "";
    if (fresh.error) refused.set(sent, fresh.error);
    if (fresh.error && example) return; // what was shown stays
    data = fresh;
    title.textContent = data.title;
    names.hidden = data.examples.length < 2;
    names.replaceChildren(...data.examples.map(({name}, i) => h("button", {type: "button", onclick: () => { error.textContent = ""; show(i); fill(); }}, name)));
    show(data.chosen);
    if (box.getRootNode().activeElement !== typed) fill();
  }

  const fill = () => { typed.value = example.text; };

  const whole = (n, one) => `${n.toLocaleString("en-US")} ${one}${n === 1 ? "" : "s"}`;

  function show(i) {
    example = data.examples[i];
    chosen = null;
    [...names.children].forEach((button, k) => button.setAttribute("aria-pressed", k === i));
    sides.replaceChildren(...example.tokenizers.map(side));
    tell();
  }

  function side({name, count, pieces}, k) {
    const list = h("div", {class: "pieces", role: "listbox", "aria-label": `${name}: ${whole(count, "token")}`, tabindex: count ? null : 0,
      onpointerover: ({target}) => { const piece = target.closest(".piece"); if (piece) choose(k, Number(piece.dataset.piece)); },
      onclick: ({target}) => target.closest(".piece")?.focus()});
    let token = 0, inside = null;
    pieces.forEach(([shown, , , , , kind, together], i) => {
      if (kind === "gap") list.append(h("span", {class: "gap", "aria-hidden": "true"}, ...broken(shown)));
      else {
        const piece = h("span", {class: `piece ${kind}`, role: "option", "aria-selected": "false", tabindex: token ? -1 : 0, "data-piece": i,
          style: `--tint:var(--tint${token % 4})`, onfocus: () => choose(k, i)}, ...broken(shown));
        token += 1;
        if (kind !== "bytes" && kind !== "shared") inside = null;
        else if (together) {
          inside = h("span", {class: "split", role: "group", "aria-label": together}, h("i", {"aria-hidden": "true"}, together));
          list.append(inside);
        }
        (inside ?? list).append(piece);
      }
      list.append(h(shown.endsWith("⏎") ? "br" : "wbr")); // a line may end after every piece
    });
    const [total, bytes] = [whole(example.characters, "character"), whole(example.bytes, "byte")];
    return h("div", {class: "side"}, h("div", {class: "name"}, name),
      h("div", {class: "counts"}, h("b", {}, whole(count, "token")), ` for ${total} (${bytes}): `,
        h("b", {}, count ? num(example.characters / count) : "–"), " characters per token"), list);
  }

  /** Text with a new line after its last line feed; what is empty still has a place. */
  function broken(shown) {
    const end = shown.lastIndexOf("⏎") + 1;
    return end && end < shown.length ? [shown.slice(0, end), h("br"), shown.slice(end)] : [shown || "∅"];
  }

  const at = (k, i) => sides.children[k].querySelector(`[data-piece="${i}"]`);

  function choose(k, i) {
    chosen = [k, i];
    const [, , , start, end] = example.tokenizers[k].pieces[i];
    sides.querySelectorAll(".piece").forEach((piece) => { piece.classList.remove("same"); piece.setAttribute("aria-selected", "false"); });
    example.tokenizers.forEach((_, o) => {
      if (o !== k) example.tokenizers[o].pieces.forEach(([, , , from, to, kind], j) => {
        if (kind !== "gap" && from < end && to > start) at(o, j).classList.add("same");
      });
    });
    sides.children[k].querySelectorAll("[tabindex='0']").forEach((piece) => piece.setAttribute("tabindex", -1));
    at(k, i).setAttribute("tabindex", 0); // Tab reaches each tokenizer once, the arrow keys move in it
    at(k, i).setAttribute("aria-selected", "true");
    tell();
  }

  function tell() {
    if (!chosen) {
      status.textContent = example.tokenizers.map(({name, count}) => `${name}: ${whole(count, "token")}`).join("; ") + ". Point at a piece or move with the arrow keys for its id and its place.";
      return;
    }
    const [k, i] = chosen;
    const {name, count, pieces} = example.tokenizers[k];
    const [shown, written, id, start, end, kind, together] = pieces[i];
    const number = pieces.slice(0, i + 1).filter((piece) => piece[5] !== "gap").length;
    const slice = `text[${start}:${end}]`;
    const split = pieces.slice(0, i + 1).findLast(([, , , , , other, all]) => other === kind && all)?.[6];
    const place = start === end ? "stands for no characters"
      : {text: `${slice} = “${shown}”`, bytes: `${shown.length > 2 ? "bytes" : "byte"} ${shown}, part of “${split}”, ${slice}`, shared: `shares ${slice} with its neighbours`, special: `${slice} = “${together}”`}[kind];
    status.textContent = `${name}, ${kind === "special" ? "special token" : "token"} ${number} of ${count}: “${written}”, id ${id}: ${place}.`;
  }

  box.addEventListener("keydown", (event) => {
    if (event.target === typed || event.ctrlKey || event.metaKey || event.altKey) return;
    const side = event.target.closest(".side");
    if (!side || !["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    const pieces = (other) => [...other.querySelectorAll(".piece")];
    const own = pieces(side);
    const i = Math.max(0, own.indexOf(event.target.closest(".piece")));
    const goal = {ArrowLeft: own[Math.max(0, i - 1)], ArrowRight: own[Math.min(own.length - 1, i + 1)], Home: own[0], End: own.at(-1)}[event.key]
      ?? across(side, own[i], event.key === "ArrowDown" ? 1 : -1);
    goal?.focus({preventScroll: true});
    if (goal) inSight(goal);
  });

  /** The piece of the next tokenizer that stands for the same characters. */
  function across(side, piece, by) {
    const [k, other] = [[...sides.children].indexOf(side), [...sides.children].indexOf(side) + by];
    if (!piece || other < 0 || other >= sides.children.length) return piece;
    const [, , , start, end] = example.tokenizers[k].pieces[piece.dataset.piece];
    const there = example.tokenizers[other].pieces.map((entry, i) => [entry, i]).filter(([entry]) => entry[5] !== "gap");
    const [, i] = there.find(([[, , , from, to]]) => from < end && to > start) ?? there.findLast(([[, , , from]]) => from <= start) ?? there[0] ?? [];
    return i === undefined ? piece : at(other, i);
  }

  function inSight(piece) { // without moving the page
    const list = piece.closest(".pieces");
    const [inner, outer] = [piece.getBoundingClientRect(), list.getBoundingClientRect()];
    if (inner.top < outer.top) list.scrollTop += inner.top - outer.top - 8;
    if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom + 8;
  }

  update(data);
  return {update};
}
