// A text field with suggestions at the cursor, how the text before it can go on.
// data: {title, text, tree: [[whole text, suggestions]], answer?: suggestions or null, asked?: the message that it answers, error?, live?}
// suggestions: [[what is put behind the text, probability, how it is shown]]. Live it asks with {text: what stands before the
// cursor, rest: what stands behind it, turn}.

import {h, BARS, bar, probability, root} from "./shared.js";

const STYLE = `
.ck { max-width:980px; }
.ck p { color:var(--ink); font-size:16px; min-height:1.45em; overflow-wrap:anywhere; }
.ck .error { min-height:0; color:var(--accent2); }
.ck .hint { color:var(--soft); margin-top:6px; }
.ck .hint kbd { font:inherit; border:1px solid var(--line); border-radius:4px; padding:0 5px; background:var(--field); color:var(--ink); white-space:nowrap; }
.ck .paper { position:relative; margin-top:6px; font-size:20px; line-height:1.5; }
.ck .sheet { display:grid; max-height:max(45vh, 160px); overflow-y:auto; }
.ck textarea, .ck .mirror { grid-area:1 / 1; font:inherit; width:100%; min-width:0; min-height:2em; margin:0; padding:8px 10px; border:1px solid var(--line);
  border-radius:6px; letter-spacing:normal; word-spacing:normal; white-space:pre-wrap; overflow-wrap:anywhere; unicode-bidi:plaintext; text-align:start; }
.ck textarea { display:block; overflow:hidden; resize:none; color:var(--ink); background:var(--field); }
.ck .mirror { visibility:hidden; pointer-events:none; }
${BARS}
.ck .popup { position:absolute; z-index:2; width:min(100%, 460px); border:1px solid var(--soft); border-radius:6px; padding:4px; background:var(--field);
  box-shadow:0 3px 12px rgb(0 0 0 / .3); gap:2px; line-height:1.4; }
.ck .popup [role=option] { grid-template-columns:minmax(0, 1fr) minmax(40px, 22%) 66px; border:1px solid transparent; border-radius:5px; cursor:pointer; }
.ck .popup .token { white-space:pre-wrap; overflow-wrap:anywhere; }
@media print { .ck .sheet { max-height:none; } .ck .popup { left:0 !important; } } /* the paper is less wide */
.ck .popup [aria-selected=true] { border-color:var(--accent); box-shadow:inset 0 0 0 1px var(--accent); font-weight:700; }
`;

export function mount(el, data, {emit}) {
  const box = root(el, STYLE, "Write", data.title);
  const name = `ck-write-${Math.random().toString(36).slice(2)}`; // of the list and its options
  const title = h("strong");
  const status = h("p", {"aria-live": "polite"});
  const error = h("p", {class: "error", role: "alert"});
  const area = h("textarea", {"aria-label": "Text", "aria-autocomplete": "list", "aria-haspopup": "listbox", "aria-describedby": `${name}-keys`, spellcheck: "false",
    autocomplete: "off", rows: 1, oninput: changed, onkeydown: press, onkeyup: moved, onpointerup: moved, onblur: away});
  const [mark, before, after] = [h("span"), document.createTextNode(""), document.createTextNode("")];
  const mirror = h("div", {class: "mirror", "aria-hidden": "true"}, before, mark, after); // as wide and high as the field; tells where the cursor is
  const list = h("div", {class: "bars popup", role: "listbox", id: name, "aria-label": "Suggestions", hidden: ""});
  const sheet = h("div", {class: "sheet", onscroll: () => place()}, mirror, area);
  const paper = h("div", {class: "paper"}, sheet, list);
  const suggest = h("button", {type: "button", onclick: () => { area.focus({preventScroll: true}); ask(); }}, "Suggest");
  const again = h("button", {type: "button", onclick: startAgain}, "Start again");
  const key = (text) => h("kbd", {}, text);
  const hint = h("p", {class: "hint", id: `${name}-keys`}, key("Tab"), " suggests, ", key("↑"), " ", key("↓"), " choose, ", key("Enter"), " takes, ", key("Esc"),
    " closes, ", key("Ctrl"), " ", key("Z"), " undoes. ", key("Esc"), " ", key("Tab"), " leaves the field.");
  box.append(title, h("div", {class: "row"}, suggest, again), error, status, paper, hint);
  const known = new Map(); // text -> its suggestions
  let asked = null, turn = 0; // what the kernel works on
  let offered = [], chosen = 0, at = null; // the open list; where the cursor was seen last
  let leave = false, begun = false; // whether Tab leaves the field

  const say = (...parts) => status.replaceChildren(...parts);
  const quoted = (token) => h("bdi", {}, `“${token}”`); // else a Hebrew one would pull the number behind it over
  const isOpen = () => !list.hidden;
  const spot = () => `${area.selectionStart} ${area.selectionEnd}`;
  const textBefore = () => area.value.slice(0, area.selectionStart);

  function update(fresh) {
    data = fresh;
    title.textContent = data.title;
    for (const [text, suggestions] of data.tree) if (!known.has(text)) known.set(text, suggestions);
    if (data.answer) known.set(data.asked.text, data.answer); // a late one too: it belongs to its text
    if (!begun) { // a live view that is shown anew goes on where it was
      begun = true;
      turn = data.asked?.turn ?? 0;
      const text = data.asked ? data.asked.text : data.text;
      area.value = text + (data.asked?.rest ?? "");
      area.setSelectionRange(text.length, text.length);
      mirrored();
      if (known.has(text)) open(known.get(text));
      requestAnimationFrame(place); // a notebook may attach the element only now
    } else if (asked && JSON.stringify(data.asked) === JSON.stringify(asked)) {
      asked = null;
      error.textContent = data.error;
      if (data.error) say();
      else open(known.get(textBefore()));
    }
  }

  // --- asking ---------------------------------------------------------------------------------------------------

  function ask() {
    withdraw();
    const text = textBefore();
    if (known.has(text)) open(known.get(text));
    else if (data.live) {
      asked = {text, rest: area.value.slice(area.selectionEnd), turn: ++turn};
      at = spot();
      say("Asking …");
      emit(asked);
    } else say(END);
  }

  const END = "Nothing is stored for this text: undo, start again, or run the notebook to go on.";

  function withdraw() {
    asked = null;
    error.textContent = "";
    close();
  }

  // --- the list -------------------------------------------------------------------------------------------------

  function open(suggestions) {
    [offered, chosen, at] = [suggestions, 0, spot()];
    if (!offered.length) return say("No suggestion for this text.");
    list.replaceChildren(...offered.map(([, p, shown], i) => h("div", {role: "option", id: `${name}-${i}`, "data-p": p, title: `${shown}: ${p}`,
      onpointerdown: (event) => event.preventDefault(), // the field keeps the cursor
      onpointermove: () => { if (chosen !== i) choose(i); }, onclick: () => take(i)},
      h("span", {class: "token"}, shown), bar(p), h("span", {class: "number"}, probability(p)))));
    list.hidden = false;
    area.setAttribute("aria-controls", name);
    place();
    choose(0);
  }

  function close() {
    list.hidden = true;
    paper.style.marginBottom = "";
    for (const attribute of ["aria-controls", "aria-activedescendant"]) area.removeAttribute(attribute);
  }

  /** Under the cursor, as far as the field is wide. */
  function place() {
    if (!isOpen()) return;
    const [line, wide] = [parseFloat(getComputedStyle(mirror).lineHeight), list.offsetWidth];
    list.style.left = `${Math.max(0, Math.min(mark.offsetLeft, paper.clientWidth - wide))}px`;
    list.style.top = `${mark.offsetTop - sheet.scrollTop + line + 2}px`;
    paper.style.marginBottom = `${Math.max(0, list.offsetTop + list.offsetHeight - sheet.offsetHeight) + 6}px`;
  }

  function choose(i) {
    chosen = i;
    [...list.children].forEach((option, o) => option.setAttribute("aria-selected", o === i));
    area.setAttribute("aria-activedescendant", `${name}-${i}`);
    const [, p, shown] = offered[i];
    say(`Suggestion ${i + 1} of ${offered.length}: `, quoted(shown), ` ${probability(p)}.`);
  }

  function take(i) {
    const [suggestion, , shown] = offered[i];
    put(suggestion);
    const more = data.live || known.has(textBefore());
    say("Taken: ", quoted(shown), more ? ". Tab suggests what comes next." : `. ${END}`);
  }

  /** In place of what is selected, so that the browser's own undo brings it back. */
  function put(text) {
    area.focus({preventScroll: true});
    apart();
    if (!document.execCommand(text ? "insertText" : "delete", false, text)) {
      area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
      changed();
    }
    apart();
  }

  /** Chromium undoes at once what was typed without the cursor moving in between: so it moves, and comes back. */
  function apart() {
    const [start, end] = [area.selectionStart, area.selectionEnd];
    area.setSelectionRange(0, 0);
    area.setSelectionRange(start, end);
  }

  function startAgain() {
    if (area.value !== data.text) {
      area.focus({preventScroll: true});
      area.select();
      put(data.text);
    }
    area.setSelectionRange(data.text.length, data.text.length); // wherever the cursor was, also after an undo
    mirrored();
    ask();
  }

  // --- typing ---------------------------------------------------------------------------------------------------

  function mirrored() {
    before.data = textBefore();
    after.data = `${area.value.slice(area.selectionStart)}\u200b`; // a last line without a letter has its height too
  }

  function changed() {
    withdraw();
    leave = false;
    say();
    mirrored();
  }

  function moved() {
    if (spot() === at) return;
    [at, leave] = [spot(), false];
    mirrored();
    if (asked || isOpen()) { withdraw(); say(); }
  }

  function away() {
    leave = false;
    if (asked || isOpen()) { withdraw(); say(); }
  }

  function press(event) {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    const by = {ArrowUp: -1, ArrowDown: 1}[event.key];
    if (event.key === "Tab") {
      if (event.shiftKey || leave) return;
      if (!asked && !isOpen()) { moved(); ask(); }
    } else if (event.key === "Escape") {
      if (asked || isOpen()) { withdraw(); say("Closed. Tab leaves the field now, typing goes on."); }
      [at, leave] = [spot(), true];
    } else if (isOpen() && by) choose((chosen + by + offered.length) % offered.length);
    else if (isOpen() && event.key === "Enter" && !event.shiftKey) take(chosen);
    else return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own keys
  }

  new ResizeObserver(place).observe(paper);
  update(data);
  return {update};
}
