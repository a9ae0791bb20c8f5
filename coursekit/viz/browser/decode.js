// Writing with a GPT: suggestions at the cursor (decode/text.py), the next token (nn/sampling.py), an answer (decode/chat.py).

import {largest, softmax} from "./models.js";
import {grouped, Refused} from "./text.js";

const logSoftmax = (logits) => softmax(logits).map(Math.log);

/** A token drawn from logits: temperature first, then top-k, then top-p; at 0 it is the likeliest. */
export function drawn(logits, temperature, k, p) {
  if (temperature === 0) return largest(logits, 1)[0];
  const scaled = Float64Array.from(logits, (x) => x / temperature);
  const least = k === null ? -Infinity : scaled[largest(scaled, k).at(-1)];
  const share = softmax(scaled.map((x) => (x < least ? -Infinity : x)));
  if (p !== null) {
    let sum = 0;
    const order = largest(share, share.length).reverse(); // the least likely first, so that small numbers are added up
    for (const i of order.slice(0, -1)) if ((sum += share[i]) <= 1 - p) share[i] = 0;
  }
  let u = Math.random() * share.reduce((a, b) => a + b, 0);
  const found = share.findIndex((each) => (u -= each) < 0);
  return found < 0 ? largest(share, 1)[0] : found;
}

/** How a text may go on: k pieces of text with their probabilities, as `suggest` in decode/text.py finds them. */
export async function suggest(model, text, k, length) {
  const {tokenizer, texts, end} = model;
  const room = model.about.max_length - length - 1;
  let ids = [end, ...tokenizer.encode(text).slice(-(room - 1))];
  const {logits} = await model.read(ids);
  const logP = (t) => { const row = logSoftmax(model.row(logits, t)); row[end] = -Infinity; return row; };
  const likeliest = (row) => largest(row, k).filter((i) => row[i] > -Infinity);
  const ahead = logP(ids.length - 1);
  let candidates = likeliest(ahead).map((token) => ({tokens: [token], p: ahead[token]}));
  let begun = "";
  if (ids.length > 1 && ids.at(-1) !== end) { // behind an end a new text begins
    const before = logP(ids.length - 2);
    const last = ids.at(-1);
    ids = ids.slice(0, -1);
    begun = texts[last];
    const fits = texts.flatMap((other, i) => (i !== last && other.startsWith(begun) ? [i] : []));
    const scale = Math.log([last, ...fits].reduce((sum, i) => sum + Math.exp(before[i]), 0));
    candidates = candidates.map(({tokens, p}) => ({tokens: [last, ...tokens], p: p + before[last] - scale}));
    const others = new Float64Array(before.length).fill(-Infinity);
    for (const i of fits) others[i] = before[i] - scale;
    candidates.push(...likeliest(others).map((token) => ({tokens: [token], p: others[token]})));
  }
  const found = new Map();
  for (const {tokens, p} of candidates.sort((a, b) => b.p - a.p)) {
    if (found.size === k) break;
    const [piece, total] = await goOn(model, ids, tokens, p, length + tokens.length - 1);
    const added = piece.slice(begun.length);
    if (added.replace(/^\n+|\n+$/g, "") && !piece.includes("\ufffd") && !found.has(added)) found.set(added, total);
  }
  return [...found].sort((a, b) => b[1] - a[1]);
}

/** `tokens` behind `ids` and what most likely follows, up to `length` tokens or the end of the line: [text, probability]. */
async function goOn(model, ids, tokens, logP, length) {
  const {tokenizer, end} = model;
  let past, inputs = [...ids, ...tokens];
  const without = (text) => text.replace(/^\n+/, "");
  while (tokens.length < length && !without(tokenizer.decode(tokens)).includes("\n")) {
    const {logits, present} = await model.read(inputs, past);
    const row = logSoftmax(model.row(logits, inputs.length - 1));
    const [token] = largest(row, 1);
    if (token === end) break;
    [past, tokens, inputs, logP] = [present, [...tokens, token], [token], logP + row[token]];
  }
  const text = tokenizer.decode(tokens);
  const line = without(text);
  return [text.slice(0, text.length - line.length) + line.split("\n")[0], Math.exp(logP)];
}

/** What the model writes after a prompt, up to the end of its turn: [token as text, probability] of each. */
export async function reply(model, prompt, most) {
  const {tokenizer} = model;
  const end = tokenizer.ids.get("<|end|>") ?? -1; // a base model has none, and never ends
  const ids = model.begin(prompt);
  const left = Math.min(most, model.about.max_length - ids.length);
  if (left < 1) throw new Refused(`The conversation takes ${grouped(ids.length)} tokens, and the model has ${grouped(model.about.max_length)} places for it and the answer: write less, or start a new conversation.`);
  const written = [], p = [];
  for (let past, inputs = ids; written.length < left && written.at(-1) !== end; inputs = [written.at(-1)]) {
    const {logits, present} = await model.read(inputs, past);
    const share = softmax(model.row(logits, inputs.length - 1));
    const [token] = largest(share, 1);
    written.push(token);
    p.push(share[token]);
    past = present;
  }
  if (written.at(-1) !== end) return whole(tokenizer, written, p);
  return [...whole(tokenizer, written.slice(0, -1), p), ["<|end|>", p.at(-1)]];
}

/** Each token as text; one that ends within a character is joined with the next, their probabilities multiplied. */
function whole(tokenizer, tokens, p) {
  const found = [];
  let waiting = [], share = 1;
  tokens.forEach((token, i) => {
    waiting = [...waiting, token];
    share *= p[i];
    const text = tokenizer.decode(waiting);
    if (text.endsWith("\ufffd") && i < tokens.length - 1 && waiting.length < 4) return;
    found.push([text, share]);
    [waiting, share] = [[], 1];
  });
  return found;
}
