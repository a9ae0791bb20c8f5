// One request, two answers: which is better? A reward model that is fitted to the choices says what it believes one likes.
// data: {title, features: [{name, more, less: what it is to like more of it, and less}], ridge, pairs: [{request, answers: [A, B],
//   x: for each feature (f(A) - f(B)) / scale}]}

import {num, h, root} from "./shared.js";

const STYLE = `
.ck { max-width:1080px; }
.ck p { color:var(--ink); font-size:16px; overflow-wrap:anywhere; }
.ck p[aria-live] { min-height:1.45em; color:var(--soft); }
.ck .top { display:flex; flex-wrap:wrap; justify-content:space-between; gap:4px 20px; align-items:baseline; }
.ck .marks { display:flex; flex-wrap:wrap; gap:3px; }
.ck .marks span { width:24px; height:24px; line-height:22px; text-align:center; border:1px solid var(--line); border-radius:4px; font-size:14px; color:var(--soft); }
.ck .marks .right { background:var(--accent); border-color:var(--accent); color:#fff; font-weight:700; }
.ck .marks .wrong { border:2px solid var(--accent2); line-height:20px; color:var(--accent2); font-weight:700; }
.ck[data-dark] .marks .right { color:#000; }
.ck .marks .now { border:2px solid var(--ink); line-height:20px; color:var(--ink); }
.ck .request { margin:8px 0; padding:8px 12px; border-left:4px solid var(--accent); font-size:20px; white-space:pre-wrap; overflow-wrap:anywhere; unicode-bidi:plaintext;
  max-height:260px; overflow:auto; }
.ck .answers { display:grid; grid-template-columns:1fr 1fr; gap:12px; }
.ck .answers button { display:flex; gap:12px; align-items:baseline; min-width:0; min-height:84px; padding:10px 14px; font-size:20px; line-height:1.4; text-align:start; border-radius:10px; }
.ck .answers button:hover { border-color:var(--accent); box-shadow:inset 0 0 0 1px var(--accent); }
.ck .answers b { font-size:24px; color:var(--accent); }
.ck .answers span { min-width:0; white-space:pre-wrap; overflow-wrap:anywhere; unicode-bidi:plaintext; flex:1; }
.ck .guess { display:grid; grid-template-columns:auto 1fr auto; gap:10px; align-items:center; margin:10px 0 4px; font-size:17px; font-variant-numeric:tabular-nums; }
.ck .guess .whole { display:flex; height:18px; border:1px solid var(--line); border-radius:3px; overflow:hidden; }
.ck .guess i { background:var(--accent); }
.ck .guess i + i { background:none; border-left:2px solid var(--ink); flex:1; }
.ck kbd { font:inherit; border:1px solid var(--line); border-radius:4px; padding:0 5px; background:var(--field); color:var(--ink); white-space:nowrap; }
.ck .hint { margin:0; color:var(--soft); }
.ck .hint span { white-space:nowrap; }
.ck .row .hint { margin-left:6px; }
.ck .heading { margin:14px 0 2px; font-size:17px; font-weight:600; color:var(--ink); }
.ck .belief { font-size:20px; min-height:1.45em; }
.ck .feature { display:grid; grid-template-columns:minmax(90px, 22%) 1fr 128px; gap:0 14px; align-items:center; padding:3px 0; }
.ck .feature .name { font-size:17px; overflow-wrap:anywhere; }
.ck .feature .number { text-align:right; font-size:17px; font-variant-numeric:tabular-nums; white-space:nowrap; }
.ck .track { position:relative; height:20px; background:var(--field); border:1px solid var(--line); border-radius:3px; }
.ck .track i { position:absolute; top:2px; bottom:2px; }
.ck .track .plus { background:#c96f00; }
.ck .track .minus { background:#2f76b5; }
.ck .track .zero { top:-3px; bottom:-3px; left:50%; border-left:2px solid var(--ink); margin-left:-1px; }
.ck .track .error { top:8px; bottom:8px; border:solid var(--ink); border-width:2px 0 0; }
.ck .track .error::before, .ck .track .error::after { content:""; position:absolute; top:-6px; height:10px; border-left:2px solid var(--ink); }
.ck .track .error::before { left:0; } .ck .track .error::after { right:0; }
.ck .poles { display:flex; justify-content:space-between; gap:14px; grid-column:2; font-size:14px; color:var(--soft); overflow-wrap:anywhere; }
.ck .poles span:last-child { text-align:right; }
@media (max-width:520px) {
  .ck .answers { grid-template-columns:minmax(0, 1fr); } .ck .answers button { min-height:56px; }
  .ck .feature { grid-template-columns:1fr auto; } .ck .track, .ck .poles { grid-column:1 / -1; }
  .ck .track { grid-row:2; }
}
`;

const sigmoid = (z) => 1 / (1 + Math.exp(-z));
const dot = (a, b) => a.reduce((sum, each, i) => sum + each * b[i], 0);

/** The solution of a x = b, for a that is symmetric and positive definite: Gauss without a search for pivots. */
function solve(a, b) {
  const [n, rows] = [b.length, a.map((row, i) => [...row, b[i]])];
  for (let i = 0; i < n; i++) {
    for (let j = i + 1; j < n; j++) {
      const share = rows[j][i] / rows[i][i];
      for (let k = i; k <= n; k++) rows[j][k] -= share * rows[i][k];
    }
  }
  const x = Array(n).fill(0);
  for (let i = n - 1; i >= 0; i--) x[i] = (rows[i][n] - dot(rows[i].slice(i + 1, n), x.slice(i + 1))) / rows[i][i];
  return x;
}

/**
 * The weights that minimise - sum ln sigma(w · row) + ridge / 2 |w|², and their standard errors. Newton's steps, halved where
 * the loss would not fall; the loss is convex, and ridge > 0 makes its minimum unique.
 * @param {number[][]} rows f(chosen) - f(rejected), scaled, of each choice.
 */
export function fit(rows, ridge, n) {
  const loss = (w) => rows.reduce((sum, row) => { const z = -dot(w, row); return sum + Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z))); }, (ridge / 2) * dot(w, w));
  const curvature = (w) => {
    const at = Array.from({length: n}, (_, i) => Array.from({length: n}, (_, j) => (i === j ? ridge : 0)));
    for (const row of rows) {
      const p = sigmoid(dot(w, row));
      for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) at[i][j] += p * (1 - p) * row[i] * row[j];
    }
    return at;
  };
  let w = Array(n).fill(0);
  for (let step = 0; step < 100; step++) {
    const slope = w.map((each, i) => ridge * each - rows.reduce((sum, row) => sum + sigmoid(-dot(w, row)) * row[i], 0));
    if (Math.max(...slope.map(Math.abs)) < 1e-12) break;
    const move = solve(curvature(w), slope);
    let [size, next] = [1, w];
    do {
      next = w.map((each, i) => each - size * move[i]);
      size /= 2;
    } while (loss(next) > loss(w) && size > 1e-6);
    if (size <= 1e-6) break; // no step is better to the last digit
    w = next;
  }
  const at = curvature(w);
  const errors = w.map((_, i) => Math.sqrt(solve(at, w.map((_, j) => (i === j ? 1 : 0)))[i]));
  return {weights: w, errors};
}

const listed = (parts) => (parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`);

/** What the weights say of the one who chose, surest first. A claim needs 1.64 standard errors, a guess 1. */
export function inWords(features, {weights, errors}) {
  const ratio = (i) => Math.abs(weights[i]) / errors[i];
  const order = [...features.keys()].sort((i, j) => ratio(j) - ratio(i));
  const liked = (some) => listed(some.map((i) => (weights[i] > 0 ? features[i].more : features[i].less)));
  const names = (some) => listed(some.map((i) => features[i].name));
  const sure = order.filter((i) => ratio(i) >= 1.64);
  const maybe = order.filter((i) => ratio(i) >= 1 && ratio(i) < 1.64);
  const small = order.filter((i) => ratio(i) < 1 && Math.abs(weights[i]) + errors[i] < 0.5); // a typical difference moves the odds by less than e^0.5 = 1.65
  const open = order.filter((i) => ratio(i) < 1 && !small.includes(i));
  return [
    sure.length ? `You seem to like ${liked(sure)}.` : "",
    maybe.length ? `Perhaps you ${sure.length ? "also " : ""}like ${liked(maybe)}.` : "",
    small.length ? `${names(small)} hardly ${small.length > 1 ? "count" : "counts"}.` : "",
    open.length ? `Too few choices to tell: ${names(open)}.` : "",
  ].filter(Boolean).join(" ");
}

export function mount(el, data) {
  const {pairs, features, ridge} = data;
  const box = root(el, STYLE, "Prefer", data.title);
  const place = h("span", {class: "place"});
  const marks = h("div", {class: "marks", role: "img"}, ...pairs.map((_, i) => h("span", {}, i + 1)));
  const request = h("div", {class: "request", role: "group", "aria-label": "Request", tabindex: 0});
  const texts = [h("span"), h("span")];
  const buttons = texts.map((text, i) => h("button", {type: "button", onclick: () => pick(i)}, h("b", {}, "AB"[i]), text));
  const answers = h("div", {class: "answers", role: "group", "aria-label": "Answers"}, ...buttons);
  const guess = h("div", {class: "guess"});
  const status = h("p", {"aria-live": "polite"});
  const undo = h("button", {type: "button", onclick: () => go(picks.slice(0, -1), "Taken back.")}, "Undo");
  const again = h("button", {type: "button", onclick: () => go([], "Started again.")}, "Start again");
  const key = (text) => h("kbd", {}, text);
  const hint = h("p", {class: "hint"}, h("span", {}, key("A"), " or ", key("←")), ", ", h("span", {}, key("B"), " or ", key("→")), " choose, too.");
  const belief = h("p", {class: "belief"});
  const score = h("p", {class: "score"});
  const tracks = features.map(() => h("div", {class: "track", "aria-hidden": "true"}));
  const figures = features.map(() => h("span", {class: "number"}));
  const rows = features.map(({name, more, less}, i) => h("div", {class: "feature", role: "listitem"}, h("span", {class: "name"}, name), tracks[i], figures[i],
    h("div", {class: "poles"}, h("span", {}, `← ${less}`), h("span", {}, `${more} →`))));
  box.append(h("div", {class: "top"}, h("strong", {}, data.title), place, marks), request, answers, guess, h("div", {class: "row"}, undo, again, hint), status,
    h("div", {class: "heading"}, "What the reward model believes"), belief, h("div", {role: "list", "aria-label": "Weights of the features"}, ...rows), score);
  let picks = []; // 0 for A, 1 for B

  const percent = (p) => (p > 0.995 ? "> 99 %" : p < 0.005 ? "< 1 %" : `${Math.round(100 * p)} %`);
  const favourite = (p) => (p > 0.5 ? 0 : 1);
  const undecided = (p) => Math.abs(p - 0.5) < 1e-9;

  /** What the choices before pair i say: the fit, and the probability that A is chosen. */
  function before(i) {
    const fitted = fit(picks.slice(0, i).map((picked, j) => pairs[j].x.map((each) => (picked ? -each : each))), ridge, features.length);
    return {...fitted, p: i < pairs.length ? sigmoid(dot(fitted.weights, pairs[i].x)) : NaN};
  }

  function pick(i) {
    if (picks.length === pairs.length) return;
    const {p} = before(picks.length);
    const guessed = undecided(p) ? "it had no guess" : `it had expected ${"AB"[favourite(p)]}, ${percent(Math.max(p, 1 - p))}: ${favourite(p) === i ? "right" : "wrong"}`;
    go([...picks, i], `You chose ${"AB"[i]}; ${guessed}.`);
  }

  function go(fresh, said) {
    const here = box.contains(box.getRootNode().activeElement);
    picks = fresh;
    draw();
    const at = picks.length;
    status.textContent = [said, at < pairs.length ? `Pair ${at + 1} of ${pairs.length}: ${expects()}` : `All are chosen. ${belief.textContent}`].filter(Boolean).join(" ");
    // what had the focus may be gone
    if (here && at === pairs.length) again.focus({preventScroll: true});
    else if (here && !at && undo.disabled) buttons[0].focus({preventScroll: true});
  }

  function expects() {
    const {p} = before(picks.length);
    return undecided(p) ? "it has no guess." : `it expects ${"AB"[favourite(p)]}, ${percent(Math.max(p, 1 - p))}.`;
  }

  function draw() {
    const [at, ended] = [picks.length, picks.length === pairs.length];
    const guesses = picks.map((picked, i) => { const {p} = before(i); return undecided(p) ? null : favourite(p) === picked; });
    const {weights, errors, p} = before(at);
    place.textContent = ended ? `All ${pairs.length} pairs chosen` : `Pair ${at + 1} of ${pairs.length}`;
    [...marks.children].forEach((mark, i) => {
      mark.className = i === at ? "now" : i > at || guesses[i] === null ? "" : guesses[i] ? "right" : "wrong";
      mark.textContent = i >= at ? `${i + 1}` : guesses[i] === null ? "–" : guesses[i] ? "✓" : "✗";
    });
    const [asked, right] = [guesses.filter((one) => one !== null).length, guesses.filter(Boolean).length];
    score.replaceChildren(...(asked ? ["Guessed before you chose: ", h("b", {class: "number"}, `${right} of ${asked}`), ` right; a coin would get ${num(asked / 2, asked % 2)}.`]
      : ["It has not guessed yet."]), ` Whiskers: one standard error. Ridge penalty: ${ridge}. With a weight of 1, the answer that has more of it, by a typical difference, is chosen with odds of 2.7 to 1.`);
    marks.setAttribute("aria-label", `Guesses: ${right} right of ${asked}`);
    for (const part of [request, answers, guess]) part.hidden = ended;
    undo.disabled = again.disabled = !at;
    if (!ended) {
      request.textContent = pairs[at].request;
      texts.forEach((text, i) => { text.textContent = pairs[at].answers[i]; });
      guess.replaceChildren(h("span", {}, `${undecided(p) ? "No guess:" : "It expects"} A ${percent(p)}`), h("span", {class: "whole", "aria-hidden": "true"}, h("i", {style: `width:${100 * p}%`}), h("i")), h("span", {}, `B ${percent(1 - p)}`));
    }
    belief.textContent = at ? inWords(features, {weights, errors}) : "Nothing yet: choose, and it learns.";
    const reach = Math.max(2, Math.ceil(Math.max(...weights.map((w, i) => Math.abs(w) + errors[i]))));
    weights.forEach((w, i) => {
      const x = (value) => 50 + (50 * value) / reach;
      figures[i].textContent = `${num(w, 2)} ± ${num(errors[i], 2)}`;
      figures[i].title = `${w} ± ${errors[i]}`;
      tracks[i].replaceChildren(h("i", {class: w < 0 ? "minus" : "plus", style: `left:${Math.min(50, x(w))}%;width:${Math.abs(x(w) - 50)}%`}), h("i", {class: "zero"}),
        h("i", {class: "error", style: `left:${x(w - errors[i])}%;width:${(100 * errors[i]) / reach}%`}));
    });
  }

  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const i = {a: 0, A: 0, ArrowLeft: 0, b: 1, B: 1, ArrowRight: 1}[event.key];
    if (i === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own keys
    if (!event.repeat) pick(i);
  });

  go([], "");
  return {update() {}};
}
