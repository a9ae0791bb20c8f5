// On the site: the glossary's words explained where a page first uses them, what its reader has worked through, the
// scripts of the widgets, and the page on paper.
const TERMS = []; // [[names], meaning, place on the glossary's page, lecture, everyday]; filled in when the site is built

const article = document.querySelector("article.bd-article");
const [, folder, page] = location.pathname.match(/([^/]*)\/([^/]*)\.html$/) ?? [];
const OTHER = "a, button, code, pre, math, em, h1, h2, h3, h4, summary, table, script, style, .predict, .ck, .cell_input, .cell_output";

/** Name in small letters -> its term; a name in capitals, such as IoU or KL, is one only as it is written. */
const number = page?.slice(0, 2);
// before its lecture *advantage* is a word like others, and an everyday word is one again after it
const introduced = TERMS.filter(([, , , lecture, everyday]) => (everyday ? lecture === number : lecture <= number));
const known = new Map(introduced.flatMap((term) => term[0].map((name) => [name.toLowerCase(), {name, term}])));
const names = [...known.keys()].sort((a, b) => b.length - a.length).map((name) => name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
const WORD = new RegExp(`(?<![\\p{L}\\p{N}-])(${names.join("|")})(?:e?s)?(?![\\p{L}\\p{N}-])`, "giu");

const tip = document.createElement("div");
Object.assign(tip, {id: "term-tip", role: "tooltip", hidden: true});

function show(link, meaning) {
  tip.textContent = meaning;
  tip.hidden = false;
  const {left, bottom, top} = link.getBoundingClientRect();
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  const below = bottom + tip.offsetHeight + 8 < innerHeight;
  tip.style.left = `${scrollX + Math.max(8, Math.min(left, room))}px`;
  tip.style.top = `${scrollY + (below ? bottom + 4 : top - tip.offsetHeight - 4)}px`;
}

const hide = () => { tip.hidden = true; };

function explain(text, found, [, meaning, place]) {
  const word = text.splitText(found.index);
  const rest = word.splitText(found[0].length);
  const link = document.createElement("a");
  Object.assign(link, {className: "term", href: `../docs/glossary.html#${place}`});
  link.setAttribute("aria-describedby", "term-tip");
  for (const event of ["mouseenter", "focus"]) link.addEventListener(event, () => show(link, meaning));
  for (const event of ["mouseleave", "blur"]) link.addEventListener(event, hide);
  word.replaceWith(link);
  link.append(word);
  return rest;
}

function explainTerms() {
  const seen = new Set();
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT,
    (node) => (node instanceof Element && node.matches(OTHER) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  const texts = [];
  while (walker.nextNode()) if (walker.currentNode instanceof Text) texts.push(walker.currentNode);
  for (let text of texts) {
    let start = 0;
    for (const found of text.data.matchAll(WORD)) {
      const {name, term} = known.get(found[1].toLowerCase());
      if (seen.has(term) || (/^[A-Z]{2}/.test(name) && !found[0].startsWith(name))) continue;
      seen.add(term);
      const length = text.data.length;
      found.index -= start;
      const rest = explain(text, found, term);
      start += length - rest.data.length;
      text = rest;
    }
  }
  document.body.append(tip);
  document.addEventListener("keydown", ({key}) => { if (key === "Escape") hide(); });
}

// --- what one has worked through, kept in this browser alone

function worked() {
  try {
    return JSON.parse(localStorage.getItem("worked through")) ?? {};
  } catch {
    return {}; // no storage, or something else in it
  }
}

function offerToTick() {
  const box = document.createElement("input");
  Object.assign(box, {type: "checkbox", checked: Boolean(worked()[page])});
  box.addEventListener("change", () => {
    try {
      localStorage.setItem("worked through", JSON.stringify({...worked(), [page]: box.checked}));
    } catch {
      box.checked = false;
    }
  });
  const label = document.createElement("label");
  label.className = "worked";
  label.append(box, " I have worked through this lecture (your browser remembers it; nobody else is told)");
  article.append(label);
}

function tickCards() {
  const cards = [...article.querySelectorAll(".path li")];
  const done = cards.filter((card) => worked()[card.querySelector("a").getAttribute("href").match(/([^/]*)\.html$/)[1]]);
  for (const card of done) card.querySelector(".place").append(" ✓");
  if (!done.length) return;
  const said = document.createElement("p");
  said.textContent = `You have worked through ${done.length} of ${cards.length} lectures.`;
  article.querySelector(".path").before(said);
}

// --- widgets: a static picture, until it comes near; each has a script of its own, which also runs from a file

const parts = new URL("parts/", document.currentScript.src);

function mountNear() {
  const near = new IntersectionObserver((seen) => {
    for (const {target} of seen.filter((one) => one.isIntersecting)) {
      near.unobserve(target);
      const again = () => addEventListener("online", () => near.observe(target), {once: true}); // after a tunnel
      document.head.append(Object.assign(document.createElement("script"), {src: new URL(`${target.dataset.ck}.js`, parts), onerror: again}));
    }
  }, {rootMargin: "100%"});
  for (const widget of document.querySelectorAll("[data-ck]")) near.observe(widget);
}

addEventListener("DOMContentLoaded", mountNear); // now, the models that answer (page.js) are there

// --- a figure by itself, which a click or Escape closes

addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  target?.closest("dialog.figure")?.remove();
  const link = target?.closest(".cell_output a[class^=only-]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const dialog = document.createElement("dialog"), picture = /** @type {Element} */ (link.querySelector("img").cloneNode());
  picture.removeAttribute("style");
  dialog.className = "figure";
  dialog.tabIndex = 0;
  dialog.setAttribute("aria-label", "The figure by itself; Escape closes it");
  dialog.append(picture);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("keydown", ({key}) => { if (key === "Escape") dialog.close(); }); // the theme's search takes it for itself
  article.append(dialog);
  dialog.showModal();
});

// --- what is printed in columns

/** Whether lines have numbers or words below each other, with runs of spaces between them; a name and what it says are no columns. */
const inColumns = (/** @type {string} */ text) => text.split("\n").filter((line) => /\S {2,}\S.* {2,}\S/.test(line)).length > 1;

for (const printed of article?.querySelectorAll(".cell_output .output:not(.text_html) pre") ?? []) printed.classList.toggle("columns", inColumns(printed.textContent));

// --- the contents of the page follow its reader

const contents = document.querySelector(".bd-sidebar-secondary");

function follow() {
  const here = [...contents.querySelectorAll("a.active")].at(-1);
  if (!here) return;
  const {top, bottom} = here.getBoundingClientRect(), box = contents.getBoundingClientRect();
  if (top < box.top + 40 || bottom > Math.min(box.bottom, innerHeight) - 40) contents.scrollTop += top - box.top - box.height / 3;
}

/** After a long jump the theme goes on marking an entry on the way: the last heading above the reader's eye is right. */
function mark() {
  const links = [...contents.querySelectorAll("a.nav-link[href^='#']")];
  const headOf = (link) => document.getElementById(decodeURIComponent(link.hash.slice(1)));
  const here = links.filter((link) => headOf(link)?.getBoundingClientRect().top < 150).at(-1);
  for (const link of links) link.classList.toggle("active", link.parentElement.contains(here ?? null));
  follow();
}

let still;
if (contents) {
  addEventListener("scroll", () => {
    requestAnimationFrame(follow);
    clearTimeout(still);
    still = setTimeout(mark, 150);
  }, {passive: true});
}

// --- the cell of a claim that a link leads to is open

function unfold() {
  const place = location.hash.startsWith("#claim-") && document.getElementById(location.hash.slice(1));
  for (const fold of place ? place.closest(".claimed").nextElementSibling.querySelectorAll("details") : []) fold.open = true;
}

addEventListener("hashchange", unfold);
unfold();

// --- the place that the address names stays in sight while widgets and pictures above it get their height

function stay() {
  const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!place || !article || before()) return;
  const moves = new ResizeObserver(() => place.scrollIntoView());
  const end = () => moves.disconnect();
  moves.observe(article);
  setTimeout(end, 10_000);
  for (const own of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(own, end, {once: true, passive: true});
}

addEventListener("hashchange", stay);
stay();

// --- and the place that one reads, when the window changes its width, as a phone does that is turned, and after a reload

/** The last thing with a name above the reader's eye, and how far above it is. */
function reading() {
  const above = [...article.querySelectorAll("[id]:not(.ck *, svg *)")].filter((one) => one.checkVisibility() && one.getBoundingClientRect().top < 150);
  const last = above.at(-1);
  return last && scrollY > 200 ? {id: last.id, top: last.getBoundingClientRect().top} : null;
}

function goOn(place) {
  const last = place && document.getElementById(place.id);
  if (last) scrollBy({top: last.getBoundingClientRect().top - place.top, behavior: "instant"});
}

/** Where one was before a reload, or before one went away and came back. */
function before() {
  const [way] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
  const kept = sessionStorage.getItem(`place of ${location.pathname}`);
  return kept && ["reload", "back_forward"].includes(way.type) ? JSON.parse(kept) : null;
}

if (article && folder) {
  const kept = before();
  let place = null, width = innerWidth, pause;
  addEventListener("scroll", () => {
    clearTimeout(pause);
    pause = setTimeout(() => { if (innerWidth === width) place = reading(); }, 150);
  }, {passive: true});
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    requestAnimationFrame(() => goOn(place));
  });
  addEventListener("pagehide", () => sessionStorage.setItem(`place of ${location.pathname}`, JSON.stringify(place)));
  if (kept) addEventListener("load", () => setTimeout(() => goOn(kept), 100));
}

// --- the page that is read is in sight among all others, too

addEventListener("load", () => {
  const pages = document.querySelector(".bd-sidebar-primary");
  const here = [...pages?.querySelectorAll(".current > a") ?? []].at(-1);
  if (!here) return;
  const {top, bottom} = here.getBoundingClientRect(), box = pages.getBoundingClientRect();
  if (top < box.top || bottom > Math.min(box.bottom, innerHeight)) pages.scrollTop += top - box.top - box.height / 3;
});

// --- in a narrow window the contents give way to the place that was chosen in them

addEventListener("click", ({target}) => {
  if (target instanceof Element) target.closest("dialog a[href^='#']")?.closest("dialog").close();
});

const NOTHING = "No page has all of these words.";

// --- what the search shows of a page is its text, without the menus around it

addEventListener("DOMContentLoaded", () => {
  // @ts-ignore: of Sphinx' searchtools.js, on the page of the search alone
  if (typeof Search === "undefined") return;
  // @ts-ignore
  Search.htmlToText = (/** @type {string} */ html) => {
    const text = new DOMParser().parseFromString(html, "text/html").querySelector("article.bd-article");
    for (const part of text?.querySelectorAll(".headerlink, script, style") ?? []) part.remove();
    return text?.textContent ?? "";
  };
  // the lectures before the modules and classes that have a word in their names
  // @ts-ignore
  Scorer.score = ([, , , , score, , kind]) => (kind === "object" ? score - 25 : score);
  // there are no categories to select
  const none = "Your search did not match any documents. Please make sure that all words are spelled correctly and that you've selected enough categories.";
  // @ts-ignore
  Documentation.TRANSLATIONS[none] = NOTHING;
  // "k-NN" is searched as "k" and "nn", which would be marked within words all over a page
  // @ts-ignore
  const parse = Search._parseQuery;
  // @ts-ignore
  Search._parseQuery = (/** @type {string} */ query) => {
    const [all, terms, excluded, marked, objects] = parse(query);
    const long = [...marked].filter((term) => term.length > 2);
    localStorage.setItem("sphinx_highlight_terms", long.join(" "));
    return [all, terms, excluded, new Set(long), objects];
  };
}, true); // captured: before the page's own search begins

// --- above what the search finds: what the glossary says of the word, or of one that is written almost like it

/** How many letters are to be added, left out or exchanged to make b of a (Levenshtein). */
function distance(a, b) {
  let row = Array.from({length: b.length + 1}, (_, j) => j);
  for (const letter of a) {
    const above = row;
    row = [above[0] + 1];
    for (let j = 1; j < above.length; j++) row.push(Math.min(row[j - 1] + 1, above[j] + 1, above[j - 1] + Number(letter !== b[j - 1])));
  }
  return row.at(-1);
}

const link = (href, text) => Object.assign(document.createElement("a"), {href, textContent: text});
const searchFor = (words) => link(`?q=${encodeURIComponent(words)}`, words);

/** A term as it is compared: "KV-caches" is "kv cache", "queries" is "query", "[CLS]" is "cls". */
const plain = (/** @type {string} */ term) => term.trim().toLowerCase().replace(/[[\]]/g, "").replace(/-/g, " ").replace(/ies$/, "y").replace(/(?<=..[^s])s$/, "");

/** The names of the glossary, whole and in their parts ("top-k" of "top-k and top-p"), and the words in them. */
const NAMES = TERMS.flatMap((term) => term[0].flatMap((name) => [name, ...name.split(/, | and /)]).map((name) => ({name, term})));
const WORDS = TERMS.flatMap((term) => term[0].flatMap((name) => name.match(/\p{L}{4,}/gu) ?? []).map((name) => ({name, term})));

/** The one that is written almost like what was asked for: with one letter in four, and at most two, that differ
 *  ("atention", "embeding"). */
function nearest(asked, names) {
  const near = names.map((one) => ({...one, by: distance(asked, plain(one.name))})).sort((a, b) => a.by - b.by)[0];
  return near?.by <= Math.min(2, asked.length / 4) ? near : null;
}

/** Where no page has all words, each can be searched alone, and one that is written almost like a word of the glossary
 *  can be searched as that. */
function offerEach(results, asked) {
  const words = [...new Set(asked.match(/[\p{L}\p{N}]+/gu))];
  if (words.length < 2) return;
  const each = words.map((word) => nearest(plain(word), WORDS)?.name ?? word), meant = each.join(" ");
  const watch = new MutationObserver(() => {
    const summary = results.querySelector(".search-summary");
    if (summary?.textContent !== NOTHING) return;
    watch.disconnect();
    if (plain(meant) !== plain(words.join(" "))) summary.append(" Did you mean ", searchFor(meant), "?");
    summary.append(" Search for one of them: ", ...each.flatMap((word, i) => (i ? [", ", searchFor(word)] : [searchFor(word)])), ".");
  });
  watch.observe(results, {childList: true, subtree: true});
}

function lookUp() {
  const query = new URLSearchParams(location.search).get("q") ?? "", asked = plain(query);
  const results = document.getElementById("search-results");
  if (!asked || !results) return;
  offerEach(results, query);
  const near = nearest(asked, NAMES);
  const said = document.createElement("p");
  if (near) {
    const exact = near.by === 0, {name, term: [, meaning, place]} = near;
    if (!exact) said.append("Did you mean ", searchFor(name), "? ");
    said.append("The ", link(`docs/glossary.html#${place}`, "glossary"), ` says of ${exact ? "it" : "that"}: ${meaning}`);
  } else if (Array.from(asked).length < 3) { // the index holds no single letters
    said.append("What a letter means in each lecture stands in ", link("docs/notation.html", "Notation"), ".");
  }
  if (said.hasChildNodes()) results.before(said);
}

lookUp();

// --- from the search to the first match that is seen

if (!location.hash && /\/search\.html/.test(document.referrer)) {
  setTimeout(() => [...document.querySelectorAll("span.highlighted")].find((one) => one.checkVisibility())?.scrollIntoView({block: "center"}), 200);
}

// Sphinx marks what was searched in the name of its own button, too.
setTimeout(() => { for (const mark of document.querySelectorAll(".highlight-link .highlighted")) mark.replaceWith(...mark.childNodes); }, 100);

// --- on paper: light, with everything that is folded

const unfolded = [];
let theme;

addEventListener("beforeprint", () => {
  theme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  for (const folded of article.querySelectorAll("details:not([open])")) { folded.open = true; unfolded.push(folded); }
});
addEventListener("afterprint", () => {
  document.documentElement.dataset.theme = theme;
  for (const folded of unfolded.splice(0)) folded.open = false;
});

if (introduced.length && ["lectures", "exercises"].includes(folder)) explainTerms();
if (folder === "lectures") offerToTick();
if (article?.querySelector(".path")) tickCards();
