// What several models answer to one request, side by side, in a conversation.
// data: {title, models: [name], examples: [conversation], conversation?: where a live view is, asked?: the message that it
//   answers, live?}
// A conversation is {text, requests: [str], answers: for each model its answers, one for each request, null where it was not
// asked}. An answer is {tokens: [[how it is shown, probability, in percent]], ended, verdict, error?}; the last token of one
// that ended is its end of turn. Live it asks one model after the other with {model: its number, text, requests, turn}.

import {h, field, LEGEND, choices, scaleOf, viridis, root} from "./shared.js";

const STYLE = `
.ck { max-width:1080px; }
.ck p { color:var(--ink); font-size:16px; overflow-wrap:anywhere; }
.ck p[aria-live] { min-height:1.45em; margin-top:8px; color:var(--soft); }
.ck .error { color:var(--accent2); }
.ck .label { color:var(--soft); font-size:15px; min-width:5.2em; }
.ck .row button { font-size:15px; max-width:100%; overflow:hidden; text-overflow:ellipsis; white-space:nowrap; }
.ck .row button[aria-pressed=true] { border-color:var(--accent); color:var(--accent); font-weight:700; box-shadow:inset 0 0 0 1px var(--accent); }
.ck textarea, .ck .paper { display:block; width:100%; margin:6px 0; padding:8px 10px; border:1px solid var(--line); border-radius:6px; font:inherit; font-size:20px;
  line-height:1.45; color:var(--ink); white-space:pre-wrap; overflow-wrap:anywhere; unicode-bidi:plaintext; text-align:start; }
.ck textarea { background:var(--field); resize:vertical; min-height:2.6em; field-sizing:content; max-height:220px; }
.ck label.label { display:block; }
.ck .paper { max-height:220px; overflow:auto; }
.ck .request { width:fit-content; max-width:85%; margin:12px 0 6px auto; padding:5px 14px; border-radius:14px 14px 3px 14px; background:var(--accent); color:#fff; font-size:19px;
  white-space:pre-wrap; overflow-wrap:anywhere; unicode-bidi:plaintext; }
.ck[data-dark] .request { color:#000; }
.ck .sides { display:grid; grid-template-columns:repeat(auto-fit, minmax(min(100%, 240px), 1fr)); gap:10px; }
.ck .side { min-width:0; border:1px solid var(--line); border-radius:3px 14px 14px 14px; padding:7px 12px 9px; }
.ck .side.endless { border:2px dashed var(--accent2); padding:6px 11px 8px; }
.ck .head { display:flex; flex-wrap:wrap; justify-content:space-between; gap:0 12px; }
.ck .name { font-size:17px; font-weight:600; overflow-wrap:anywhere; }
.ck .facts { margin:0; font-size:15px; color:var(--soft); font-variant-numeric:tabular-nums; white-space:pre-wrap; }
.ck .facts.pointed { color:var(--ink); font-weight:600; }
.ck .endless .facts:not(.pointed) { color:var(--accent2); font-weight:600; }
.ck .said { margin-top:4px; font-size:20px; line-height:1.75; overflow-wrap:anywhere; max-height:216px; overflow:auto; padding:2px; }
.ck .said button { display:inline; padding:0 0 7px; min-width:0; min-height:0; border:0; border-radius:2px; background:none; font-size:inherit; line-height:1.2; text-align:start;
  white-space:pre-wrap; overflow-wrap:anywhere; unicode-bidi:isolate; background:linear-gradient(var(--shade), var(--shade)) 0 100% / calc(100% - 2px) 9px no-repeat; }
.ck .said .word { display:inline-block; max-width:100%; }
.ck .said button:hover, .ck .said button:focus { outline:2px solid var(--accent); outline-offset:0; }
.ck .said .end { margin-left:5px; padding:0 6px 9px; font-size:16px; color:var(--soft); border:1px solid var(--line); border-radius:5px; background-size:100% 9px; }
.ck .said .open { color:var(--accent2); font-weight:700; white-space:nowrap; }
.ck .verdict { margin:4px 0 0; padding-top:5px; border-top:1px solid var(--line); font-weight:600; }
${LEGEND}
.ck .legend { font-size:15px; }
.ck .typed input { font-size:19px; min-height:38px; }
.ck .typed + button { font-size:17px; min-height:38px; padding:2px 18px; }
`;

export function mount(el, data, {emit}) {
  const box = root(el, STYLE, "Chat", data.title);
  const {models, live} = data;
  const title = h("strong", {}, data.title);
  const examples = h("div", {class: "row", role: "group", "aria-label": "Examples", hidden: data.examples.length < 2 ? "" : null}, h("span", {class: "label"}, "Examples"),
    ...data.examples.map((each) => h("button", {type: "button", onclick: () => choose(each)}, each.requests.join(" → "))));
  const text = live ? h("textarea", {rows: 2, spellcheck: "false"}) : h("div", {class: "paper", tabindex: 0, role: "group", "aria-label": "Text"});
  const toggles = models.map((name, m) => h("button", {type: "button", "aria-pressed": "true", onclick: () => toggle(m)}, name));
  const names = h("div", {class: "row", role: "group", "aria-label": "Models", hidden: models.length < 2 ? "" : null}, h("span", {class: "label"}, "Models"), ...toggles);
  const talk = h("div", {class: "talk"});
  const status = h("p", {"aria-live": "polite"});
  const typed = live ? field("Request", "Send", "", send) : h("p", {class: "hint"}, "These conversations are stored. Run the notebook to ask something of your own.");
  const input = typed.querySelector("input");
  const again = h("button", {type: "button", style: "scroll-margin:5rem", onclick: startAgain}, "New conversation");
  if (live) typed.append(again);
  const legend = h("div", {class: "legend"}, "Probability of each token: ", ...scaleOf("0 %", "100 %"), ". Point at one, tap it, or reach it with Tab and the arrow keys.");
  box.append(title, examples, live ? h("label", {class: "label"}, "Text", text) : text, names, talk, status, typed, legend);
  const shown = models.map(() => true);
  let now, sides; // the conversation; for each request the element of each model
  let asked = null, turn = 0; // what the kernel works on

  const say = (...parts) => status.replaceChildren(...parts);
  const quoted = (token) => h("bdi", {}, `“${token}”`); // else a Hebrew token would pull the number behind it over
  const plural = (n) => `${n} token${n === 1 ? "" : "s"}`;
  const without = ({tokens, ended}) => (ended ? tokens.slice(0, -1) : tokens); // the end of the turn

  function update(fresh) {
    data = fresh;
    if (!now) { // a live view that is shown anew goes on where it was
      turn = data.asked?.turn ?? 0;
      open(data.conversation ?? data.examples[0]);
      tell();
    } else if (asked && JSON.stringify(data.asked) === JSON.stringify(asked)) {
      const [n, m] = [asked.requests.length - 1, asked.model];
      now.answers[m][n] = data.conversation.answers[m][n];
      fill(n, m);
      goOn();
    }
  }

  function open(conversation) {
    asked = null;
    now = structuredClone(conversation);
    if (live) text.value = now.text;
    else [text.textContent, text.hidden] = [now.text, !now.text];
    sides = [];
    talk.replaceChildren();
    now.requests.forEach((_, n) => append(n));
  }

  // --- asking ---------------------------------------------------------------------------------------------------

  function choose(example) {
    open(example);
    tell();
  }

  function startAgain() {
    open({text: text.value, requests: [], answers: models.map(() => [])});
    say("A new conversation about the text above.");
    input.focus({preventScroll: true});
    again.scrollIntoView({block: "nearest"}); // what stood above it is gone
  }

  function send(request) {
    if (asked) return say("Wait until all have answered.");
    if (!request.trim()) return say("Write a request first.");
    if (text.value !== now.text) open({text: text.value, requests: [], answers: models.map(() => [])});
    now.requests.push(request);
    for (const answers of now.answers) answers.push(null);
    append(now.requests.length - 1);
    input.value = "";
    goOn();
  }

  /** Ask for the first answer that is missing, or say what has been answered. */
  function goOn() {
    asked = null;
    for (const n of now.requests.keys()) {
      for (const m of models.keys()) {
        if (!shown[m] || now.answers[m][n] || stopped(n, m)) continue;
        asked = {model: m, text: now.text, requests: now.requests.slice(0, n + 1), turn: ++turn};
        sides[n][m].replaceChildren(head(m, "answering …"));
        say(`${models[m]} is answering …`);
        inSight();
        emit(asked);
        return;
      }
    }
    tell();
    takeBack();
    inSight();
  }

  /** A request that all have refused leaves the conversation and can be changed; what was said of it stays. */
  function takeBack() {
    const n = now.requests.length - 1;
    if (!now.answers.some((_, m) => shown[m] && now.answers[m][n]?.error) || now.answers.some((answers) => answers[n] && !answers[n].error)) return;
    const request = now.requests.pop();
    for (const answers of now.answers) answers.pop();
    sides.pop();
    for (let i = 0; i < 2; i++) talk.lastChild.remove();
    input.value ||= request;
  }

  /** As the conversation grows, who writes in the field sees it still. */
  function inSight() {
    if (input && typed.contains(box.getRootNode().activeElement)) typed.scrollIntoView({block: "nearest"});
  }

  /** Whether a model has refused to answer before, so that it cannot go on. */
  const stopped = (n, m) => now.answers[m].slice(0, n).some((answer) => answer?.error);

  function toggle(m) {
    if (shown[m] && shown.filter(Boolean).length === 1) return say("At least one model stays.");
    shown[m] = !shown[m];
    toggles[m].setAttribute("aria-pressed", shown[m]);
    for (const row of sides) row[m].hidden = !shown[m];
    if (live && !asked) goOn();
    else if (!live) tell();
  }

  // --- what is seen ---------------------------------------------------------------------------------------------

  function append(n) {
    sides.push(models.map((name, m) => h("div", {class: "side", role: "group", "aria-label": `${name}, answer ${n + 1}`, hidden: shown[m] ? null : ""})));
    talk.append(h("div", {class: "request"}, now.requests[n]), h("div", {class: "sides"}, ...sides[n]));
    for (const m of models.keys()) fill(n, m);
  }

  const head = (m, ...facts) => h("div", {class: "head"}, h("div", {class: "name"}, models[m]), h("p", {class: "facts"}, ...facts));

  function fill(n, m) {
    const [side, answer] = [sides[n][m], now.answers[m][n]];
    if (!answer) return side.replaceChildren(head(m, stopped(n, m) ? "does not go on, since it refused a request above; in a new conversation it takes part again" : "not asked yet"));
    if (answer.error) return side.replaceChildren(head(m), h("p", {class: "error"}, answer.error));
    const {tokens, ended, verdict} = answer;
    const top = head(m), facts = top.lastChild, length = without(answer).length;
    const told = () => {
      facts.classList.remove("pointed");
      facts.replaceChildren(ended ? `ended after ${plural(length)}` : `not stopped after ${plural(length)}`);
    };
    const point = (i) => {
      const [token, , percent] = tokens[i];
      facts.classList.add("pointed");
      facts.replaceChildren(quoted(token), ` ${percent}`);
      say(`${models[m]}, token ${i + 1} of ${tokens.length}: `, quoted(token), ` ${percent}.`);
    };
    const buttons = tokens.map(([token, p, percent], i) => h("button", {type: "button", class: ended && i === length ? "end" : null, "data-p": p, title: percent,
      style: `--shade:${viridis(p).fill}`, onpointerenter: () => point(i), onfocus: () => point(i)}, token));
    const {group, show} = choices(`Tokens of ${models[m]}`, buttons, (i) => show(i), "said");
    buttons.slice(1).forEach((button) => { button.tabIndex = -1; });
    let word; // a line may break between words, but between buttons it may break anywhere
    buttons.forEach((button, i) => {
      const begins = i === 0 || /^\s/u.test(tokens[i][0]) || /[\s⏎]$/u.test(tokens[i - 1][0]) || button.classList.contains("end");
      if (begins) button.before(word = h("span", {class: "word"}));
      word.append(button);
      if (tokens[i][0].endsWith("⏎")) word.after(h("br"));
    });
    if (!ended) group.append(h("span", {class: "open"}, " … not stopped"));
    for (const leave of ["pointerleave", "focusout"]) group.addEventListener(leave, told);
    told();
    side.classList.toggle("endless", !ended);
    side.replaceChildren(top, group, ...(verdict ? [h("p", {class: "verdict"}, verdict)] : []));
  }

  /** The last answers, for those who do not see them. */
  function tell() {
    const n = now.requests.length - 1;
    const each = models.flatMap((name, m) => {
      const answer = shown[m] ? now.answers[m][n] : null;
      if (!answer) return [];
      if (answer.error) return [`${name}: ${answer.error} `];
      const said = without(answer).map(([token]) => token).join("");
      if (!answer.ended) return [`${name} has not stopped after ${plural(answer.tokens.length)}. `];
      return [`${name}: `, quoted(said), answer.verdict ? ` (${answer.verdict}) ` : " "];
    });
    say(...each);
  }

  update(data);
  return {update};
}
