// A slide holds what fits on it: what is taller goes on on the next one, or is drawn a little smaller.
const WIDTH = 1280, HEIGHT = 720;
const SMALLER = 0.75; // as much smaller something is drawn rather than cut in two
const A_LITTLE = 0.88; // as much smaller a slide is drawn rather than followed by one with what was left over
const SMALLEST = 0.5; // an opened answer, or what cannot be cut
const READABLE = 0.7; // what is printed, so that its lines are whole; longer ones are wrapped
const GROWS = 0.85; // of a slide's height, which what was drawn smaller leaves empty when it is drawn as before again
const MARGIN = 40; // below the last line of what is cut, with the frames around it
const LISTING = "[data-ck]:has(.highlight)"; // the package's code, which is a widget for its colours in the dark
const CUTTABLE = `section, div:not([data-ck], [data-ck] *, .ck), ${LISTING}, ${LISTING} div, details[open]:not(.answer),
  ul, ol, table, tbody, pre, code, blockquote`;
const ZOOMS = Array.from({length: 12}, (_, i) => SMALLEST + i / 10); // of figures and widgets, up to where there is room
const HEADING = "h1, h2, h3, h4, h5, h6";
const ENOUGH = 1 / 3; // of a slide, that stands on it when what comes next moves on as a whole
const LEAST = 3; // lines of a listing that stand together
const SHORT = 12; // lines of one that is not cut
const BESIDE = "thead, .jp-Collapser, .jp-InputPrompt, .jp-OutputPrompt, .jp-OutputArea-prompt, aside.notes"; // no content

const heightOf = (slide) => slide.scrollHeight;
const bottomOf = (el) => el.getBoundingClientRect().bottom;

/** Whether something of `el` is seen at all: a frame without content is not. */
const seen = (el) => el.getBoundingClientRect().height > 1;

/** Whether `el` only leads to what comes after it: a heading, folded code, "such as these:", the titles of columns. */
const leads = (el) => el.matches(`${HEADING}, details:not(.answer, [open])`) || (el.matches("p") && /:\s*$/.test(el.textContent))
  || (el.matches("tr") && [...el.cells].every((cell) => cell.matches("th")));

const indent = (text) => text.search(/[^ ]/);

/** Behind the last line of a listing that ends above `bottom`, its text and colours taken out; null if none does.
 *  It is cut at an empty line, between two functions, where that leaves at least a third of these lines; else, with the same
 *  condition, between two statements that are not indented; else not above a line that is indented more, which belongs to
 *  the one before it; and not behind a line that only begins something, such as a decorator, the head of a function or its
 *  docstring, nor behind the first lines of all. */
function linesBelow(pre, bottom) {
  const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const whole = pre.textContent, cuts = [];
  let before = 0; // characters
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    for (let i = text.data.indexOf("\n"); i >= 0; i = text.data.indexOf("\n", i + 1)) {
      range.setStart(text, i);
      range.setEnd(text, i + 1);
      const line = range.getBoundingClientRect();
      if (line.height && line.bottom > bottom) break;
      const at = before + i + 1, own = whole.slice(whole.lastIndexOf("\n", at - 2) + 1, at), left = whole.slice(at);
      const lines = (text) => text.split("\n").filter((one) => one.trim()).length;
      const begins = /^\s*@|[:([{]\s*$|"""\s*$/.test(own) || lines(whole.slice(0, at)) < LEAST, few = lines(left) < LEAST;
      const good = !begins && !few, statement = /^(?!el(se|if)\b|except\b|finally\b)[^\s)\]}]/.test(left);
      if (line.height) cuts.push({place: [text, i + 1], empty: left[0] === "\n", statement: good && statement,
        outside: good && indent(left) <= indent(own), good, possible: !begins});
    }
    before += text.data.length;
  }
  if (!cuts.length) return null;
  const last = ["empty", "statement", "outside"].map((kind) => cuts.findLastIndex((one) => one[kind])).find((i) => i + 1 >= cuts.length / 3);
  const cut = (cuts[last] ?? cuts.findLast((one) => one.good) ?? cuts.findLast((one) => one.possible))?.place;
  if (!cut) return null;
  range.selectNodeContents(pre);
  range.setStart(...cut);
  if (!range.toString().trim()) return null;
  const tail = pre.cloneNode(false);
  tail.append(range.extractContents());
  while (tail.textContent.startsWith("\n")) { // the empty lines
    const first = document.createTreeWalker(tail, NodeFilter.SHOW_TEXT).nextNode();
    if (first.data) first.data = first.data.replace(/^\n+/, "");
    if (!first.data) first.remove();
  }
  return tail;
}

/** Whether `el` is a table that is not cut. */
const isSmallTable = (el) => el.matches("table") && el.getBoundingClientRect().height < HEIGHT / 3;

/** Whether the lines of `pre` stay together: a short listing, and what is printed, where a slide can hold it. */
function isShort(pre) {
  if (pre.textContent.trim().split("\n").length <= SHORT) return true;
  return !pre.matches(".highlight pre") && SMALLER * pre.getBoundingClientRect().height <= HEIGHT - MARGIN;
}

/** Whether code moves on to the next slide with its output: where they fit there together, and leave enough here. */
function movesWhole(cell, bottom) {
  if (!cell.matches(".jp-CodeCell")) return false;
  const {top, height} = cell.getBoundingClientRect();
  return height <= HEIGHT - 2 * MARGIN /* there it stands below the slide's own margin */ && top >= bottom - (1 - ENOUGH) * HEIGHT;
}

/** What of `el` lies below `bottom`, taken out of it into a frame like its own; null if it cannot be cut there. */
function below(el, bottom) {
  if (!el.matches(CUTTABLE) || movesWhole(el, bottom)) return null;
  if (el.matches("pre")) return isShort(el) ? null : linesBelow(el, bottom);
  if (isSmallTable(el)) return null;
  const parts = [...el.children].filter((part) => !part.matches(BESIDE));
  let first = parts.findIndex((part) => bottomOf(part) > bottom);
  if (first < 0) return null;
  const rest = below(parts[first], bottom);
  if (!rest) {
    while (first > 0 && leads(parts[first - 1])) first--; // no heading alone at the end
    const kept = parts.slice(0, first);
    if (!kept.some(seen)) return null;
    if (el.closest(LISTING) && !kept.some((part) => part.matches("pre") || part.querySelector("pre"))) return null; // its title alone
  }
  const tail = el.cloneNode(false);
  tail.removeAttribute("id");
  if (el.matches("ol")) tail.start = el.start + first;
  if (el.matches("table") && el.tHead) tail.append(el.tHead.cloneNode(true));
  else if (el.matches("tbody") && leads(el.rows[0])) tail.append(el.rows[0].cloneNode(true));
  tail.append(...(rest ? [rest] : [parts[first]]), ...parts.slice(first + 1));
  return tail;
}

/** Whether a slide holds one thing, such as a cell with its output; frames around it do not count. */
function holdsOne(slide) {
  let [first, ...others] = slide.children;
  while (!others.length && first?.matches("div:not([class]), div.fragment")) [first, ...others] = first.children;
  return !others.length;
}

/** Whether a widget, which has a slide of its own rather than becoming small, stands below code that is seen. */
const isBelowCode = (slide) => Boolean(slide.querySelector(".ck")) && [...slide.querySelectorAll(".jp-InputArea")].some(seen);

/** Draw what is on a slide smaller, so that it fits, as far as it can still be read. */
function shrink(slide) {
  for (let zoom = 0.95; heightOf(slide) > HEIGHT && zoom >= SMALLEST; zoom -= 0.05) {
    for (const part of slide.children) part.style.zoom = zoom;
  }
}

/** All behind the first thing in `el`, and what leads to it, taken out of it into a frame like its own; or null. */
function behindFirst(el) {
  if (!el.matches(CUTTABLE) || el.matches(`pre, ${LISTING}`) || isSmallTable(el)) return null;
  const parts = [...el.children].filter((part) => !part.matches(BESIDE));
  const first = parts.findIndex((part) => seen(part) && !leads(part));
  if (first < 0) return null;
  const rest = [behindFirst(parts[first]), ...parts.slice(first + 1)].filter(Boolean);
  if (!rest.some((part) => part.textContent.trim() || part.querySelector("svg, img"))) return null;
  const tail = el.cloneNode(false);
  tail.removeAttribute("id");
  if (el.matches("table") && el.tHead) tail.append(el.tHead.cloneNode(true));
  tail.append(...rest);
  return tail;
}

/** What of a slide does not fit, on a new one; all behind its first thing if that alone is too tall; or null. */
function restOf(slide) {
  return below(slide, slide.getBoundingClientRect().top + HEIGHT - MARGIN) ?? behindFirst(slide);
}

/** Show what a slide holds, hidden until now, as far as is needed to see that it does not fit: what moves on to the next
 *  slide unseen takes no time. */
function lookAt(slide) {
  for (const part of slide.querySelectorAll(":scope > .later")) {
    if (heightOf(slide) * SMALLER > HEIGHT) return;
    part.classList.remove("later");
    narrow(part);
  }
}

/** Whether nothing of `el` can be seen; null, which is none, is not empty. */
function isEmpty(el) {
  if (!el || el.querySelector("svg, img, canvas, input, [data-ck]")) return false;
  const copy = /** @type {Element} */ (el.cloneNode(true));
  for (const part of copy.querySelectorAll("script, style")) part.remove();
  return copy.matches("script, style") || !copy.textContent.trim();
}

/** Let a slide go on on another one, and that on a third, until each fits; returns all of them. Only the one that is looked
 *  at is laid out: a hundred with all their widgets take long. */
function divide(slide) {
  const made = [];
  for (let one = slide, rest = null; one; one = rest) {
    one.classList.add("fitting");
    lookAt(one);
    const tall = heightOf(one);
    const almost = tall * (holdsOne(one) && !isBelowCode(one) ? SMALLER : A_LITTLE) <= HEIGHT;
    rest = tall <= HEIGHT || almost ? null : restOf(one);
    one.classList.remove("fitting");
    while (rest && isEmpty(rest.firstElementChild)) one.append(rest.firstElementChild); // such as a widget's script
    if (!rest?.firstElementChild) rest = null;
    rest?.firstElementChild.classList.remove("fragment"); // the turn of the page shows it
    if (rest) one.after(rest);
    made.push(one);
  }
  return made;
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const frame = () => new Promise((done) => requestAnimationFrame(() => done(true)));
let drawn = null; // whether frames are: a printer and a window in the background draw none

/** A widget lays itself out anew within two frames, which take as long as they take on a busy machine. */
async function settled() {
  drawn ??= await Promise.race([frame(), pause(500)]) ?? false;
  if (!drawn) return pause(40);
  await frame();
  await frame();
}

/** Draw the figures and widgets of a slide as large as there is room for; a widget takes a moment to lay itself out anew. */
async function enlarge(slide) {
  const shown = [...slide.querySelectorAll(".jp-OutputArea-output:has(.ck, svg, img)")];
  if (!shown.length) return;
  const waits = Boolean(slide.querySelector(".ck"));
  const fits = async (zoom) => {
    for (const part of shown) part.style.zoom = zoom > 1 ? zoom : "";
    for (const part of slide.children) part.style.zoom = zoom < 0.95 ? zoom : "";
    if (waits) await settled();
    return heightOf(slide) <= HEIGHT && shown.every((one) => one.scrollWidth <= one.clientWidth + 1);
  };
  let fitting = 0, tooLarge = ZOOMS.length; // what is smaller fits, too: halved until two neighbours are left
  while (tooLarge - fitting > 1) {
    const middle = (fitting + tooLarge) >> 1;
    if (await fits(ZOOMS[middle])) fitting = middle;
    else tooLarge = middle;
  }
  await fits(ZOOMS[fitting]);
}

/** Whether nothing stands above it on its slide: it answers the slide before, and folded it would leave this one empty. */
function isFirst(answer) {
  const above = document.createRange();
  above.setStart(answer.closest("section"), 0);
  above.setEndBefore(answer);
  return !above.toString().trim() && !above.cloneContents().querySelector("svg, img, [data-ck], math");
}

/** Let a slide with a folded answer go on so that the opened one fits; one that comes first then is open at once. */
async function divideOpened(slide) {
  const answers = [...slide.querySelectorAll("details")].filter((one) => !one.querySelector("pre"));
  for (const answer of answers) { answer.classList.add("answer"); answer.open = true; }
  const made = divide(slide);
  for (const answer of answers) answer.open = isFirst(answer);
  for (const one of made) {
    one.classList.add("fitting");
    shrink(one);
    await enlarge(one);
    one.classList.remove("fitting");
  }
}

/** The lecturer's notes: the answers, which are folded, on the slides with them and on those that ask. */
function note(slides) {
  let asking = null;
  for (const slide of slides) {
    const asked = [...slide.querySelectorAll("strong")].find((one) => one.textContent.startsWith("Predict"));
    const answers = [...slide.querySelectorAll("details.answer")];
    const asksNext = Boolean(asked && answers[0] && answers[0].compareDocumentPosition(asked) & Node.DOCUMENT_POSITION_FOLLOWING);
    if (asked && !asksNext) asking = slide;
    if (!answers.length) continue;
    for (const own of new Set([asking ?? slide, slide])) {
      const notes = document.createElement("aside");
      notes.className = "notes";
      for (const answer of answers) notes.append(...[...answer.cloneNode(true).childNodes].filter((x) => x.nodeName !== "SUMMARY"));
      own.append(notes);
    }
    asking = asksNext ? slide : null;
  }
}

/** Above each slide without a title the one of the part that it belongs to. */
function head(slides) {
  let title = "";
  for (const slide of slides) {
    const own = slide.querySelector("h1, h2");
    if (own) {
      const plain = /** @type {Element} */ (own.cloneNode(true));
      for (const root of plain.querySelectorAll("msqrt")) root.prepend("√");
      title = plain.textContent.replace(/¶$/, "");
    }
    else slide.dataset.part = title;
  }
}

/** What is laid out for a narrow window is left out: the slides are as wide everywhere, in the speaker's small views too.
 *  In the text, since a widget that goes on on the next slide brings its styles along, which are then read anew. */
function asOnAWideScreen() {
  const narrow = /(@media[^{]*max-width:\s*)[\d.]+/g;
  for (const style of document.querySelectorAll("style")) {
    if (style.textContent.match(narrow)) style.textContent = style.textContent.replace(narrow, (_, before) => `${before}0`);
  }
}

/** What is printed and what is listed in `part` is drawn smaller, where its lines are then whole. */
function narrow(part) {
  const all = /** @type {HTMLElement[]} */ ([...part.querySelectorAll("pre")]);
  const listed = all.flatMap((pre) => [pre, .../** @type {NodeListOf<HTMLElement>} */ (pre.querySelectorAll("code"))]);
  for (const one of listed) one.style.setProperty("white-space", "pre", "important");
  const zooms = all.map((pre) => pre.clientWidth / pre.scrollWidth), sizes = all.map((pre) => parseFloat(getComputedStyle(pre).fontSize));
  for (const one of listed) one.style.whiteSpace = "";
  for (const [i, pre] of all.entries()) {
    if (zooms[i] < 1 && zooms[i] >= READABLE) pre.style.fontSize = `${0.99 * zooms[i] * sizes[i]}px`;
  }
}

const sliderOf = (target) => (target instanceof HTMLInputElement && target.type === "range" ? target : null);

/** What was used with the mouse gives the keys back to the slides. A slider keeps those that belong to it, the arrows, until
 *  it is let go, and a finger that drags it turns no page. */
function releaseControls() {
  let byPointer = false;
  addEventListener("pointerdown", ({target}) => {
    byPointer = true;
    sliderOf(target)?.setAttribute("data-prevent-swipe", "");
  }, {capture: true});
  addEventListener("pointerup", ({target}) => setTimeout(() => sliderOf(target)?.blur()));
  addEventListener("change", ({target}) => {
    if (byPointer && target instanceof HTMLElement && target.matches("[type=checkbox], [type=radio], select")) target.blur();
  });
  addEventListener("click", ({target}) => setTimeout(() => { // buttons, and what else of a widget can be clicked
    const here = document.activeElement;
    if (!byPointer || !(target instanceof Element && target.closest(".ck")) || !(here instanceof HTMLElement)) return;
    if (!here.matches("input:not([type=checkbox], [type=radio], [type=button]), textarea, select, [contenteditable]")) here.blur();
  }));
  addEventListener("keydown", (event) => {
    byPointer = false;
    if (!sliderOf(event.target) || event.ctrlKey || event.metaKey || event.altKey) return; // of the browser
    if (/^(Arrow|Home|End|Tab|Shift|Control|Meta|Alt)/.test(event.key)) return;
    event.preventDefault();
    event.target.blur();
  }, {capture: true});
}

/** Enter opens the folded answers of a slide, or its code where it has none, folds them again, and leaves the overview, unless
 *  it belongs to what has the keys. */
function openAnswers(event) {
  if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("a, button, summary, input, select, textarea")) return;
  if (Reveal.isOverview()) return Reveal.toggleOverview(false);
  const all = [...Reveal.getCurrentSlide().querySelectorAll("details")], answers = all.filter((one) => one.matches(".answer"));
  unfold(answers.length ? answers : all);
}

/** Open what is folded, or fold all if nothing is. */
function unfold(folds) {
  const folded = folds.some((one) => !one.open);
  for (const one of folds) one.open = folded;
}

const openCode = () => unfold([...Reveal.getCurrentSlide().querySelectorAll("details:not(.answer)")]);

async function begin() {
  const early = []; // keys that are pressed while the slides are laid out
  const keep = (event) => early.push(event.keyCode);
  addEventListener("keydown", keep);
  releaseControls();
  asOnAWideScreen();
  const reveal = document.querySelector(".reveal");
  await Promise.all([document.fonts.ready, ...[...document.images].map((image) => image.decode().catch(() => {}))]);
  reveal.classList.add("measured");
  const whole = document.querySelectorAll(".slides > section > section");
  for (const part of document.querySelectorAll(".slides > section > section > *")) part.classList.add("later");
  for (const [i, slide] of whole.entries()) {
    reveal.dataset.done = `${Math.round(100 * i / whole.length)} %`;
    slide.parentElement.classList.add("fitting");
    await divideOpened(slide);
    slide.parentElement.classList.remove("fitting");
  }
  reveal.classList.remove("measured");
  const slides = [...document.querySelectorAll(".slides > section > section")];
  note(slides);
  head(slides);
  await Reveal.initialize({hash: true, center: false, slideNumber: "c/t", width: WIDTH, height: HEIGHT, margin: 0.03,
    transition: "none", navigationMode: "linear", pdfSeparateFragments: false, plugins: [RevealNotes],
    keyboard: {67: openCode, 35: () => { // C; End: the last slide of all, not the first one of the last part
      const {h, v} = Reveal.getIndices(slides.at(-1));
      Reveal.slide(h, v);
    }}});
  removeEventListener("keydown", keep);
  addEventListener("keydown", openAnswers);
  Reveal.registerKeyboardShortcut("ENTER", "Open or fold the answers, or the code");
  Reveal.registerKeyboardShortcut("C", "Open or fold the code");
  // Tab would go through what is on the slides before and after (hidden, they would take shapes along that figures share)
  const rest = () => {
    for (const slide of slides) slide.inert = slide !== Reveal.getCurrentSlide() && !Reveal.isOverview() && !Reveal.isScrollView();
  };
  for (const event of ["slidechanged", "overviewshown", "overviewhidden", "resize"]) Reveal.on(event, rest);
  rest();
  for (const key of early) Reveal.triggerKey(key);
  // a widget grows as one works with it: it is drawn smaller then, and scrolled where that is not enough; and as large as
  // before when it has become small again
  for (const part of document.querySelectorAll(".slides > section > section > *")) part.dataset.zoom = part.style.zoom;
  const fit = () => {
    const slide = Reveal.getCurrentSlide();
    if (Reveal.isOverview()) return;
    const parts = [...slide.children], smaller = parts.some((part) => part.style.zoom !== (part.dataset.zoom ?? ""));
    if (smaller && Math.max(...parts.map(bottomOf)) < slide.getBoundingClientRect().top + GROWS * slide.getBoundingClientRect().height) {
      for (const part of parts) part.style.zoom = part.dataset.zoom ?? "";
    }
    if (!slide.querySelector("details[open]:not(.answer)")) shrink(slide); // code stays as large as it can be read
    slide.style.overflowY = heightOf(slide) > HEIGHT ? "auto" : "";
  };
  const grows = new ResizeObserver(() => requestAnimationFrame(fit)); // not within its own turn, which is an error
  const watch = () => {
    grows.disconnect();
    for (const part of Reveal.getCurrentSlide().children) grows.observe(part);
  };
  Reveal.on("slidechanged", () => {
    fit();
    watch();
    // reveal.js remembers how far one was in each part, and would go on there: after a jump back that passes over slides
    for (const part of document.querySelectorAll("[data-previous-indexv]")) part.removeAttribute("data-previous-indexv");
  });
  fit();
  watch();
  for (const fold of document.querySelectorAll(".slides details")) {
    fold.addEventListener("toggle", () => { // opened, it fits as well; closed, all is as large as before
      for (const part of fold.closest("section").children) part.style.zoom = part.dataset.zoom ?? "";
      fit();
    });
  }
}

// The speaker's view takes a while to be laid out, and then leads the audience to where they were when it was opened.
const placeOf = ({indexh, indexv}) => `${indexh}/${indexv}`;
const openWindow = window.open;
let opened = null; // that place, until the view is ready
window.open = (...given) => {
  opened = placeOf(Reveal.getState());
  return openWindow.apply(window, given);
};
addEventListener("message", (event) => {
  if (opened === null || typeof event.data !== "string" || !event.data.startsWith("{")) return;
  const said = JSON.parse(event.data);
  if (said.type === "connected") setTimeout(() => { opened = null; }, 3000);
  if (said.method === "setState" && placeOf(said.args[0]) === opened) event.stopImmediatePropagation();
});

addEventListener("load", begin); // widgets and pictures have their size
