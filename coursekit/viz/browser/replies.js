// What each widget is answered: the same function of its message as `answer` in the widget's Python, of a model in this browser.
// Each is given the view, {data, browser, model: name -> model}, which lasts as long as the widget, and the message.

import {drawn, reply, suggest} from "./decode.js";
import {largest, softmax} from "./models.js";
import {asRead, checkText, grouped, readable, Refused, shownOtherwise, visible} from "./text.js";

const brief = (p) => Number(p.toPrecision(7)); // as many digits as float32 has

/** Bytes in base64. */
function base64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}

const pack = (shape, values) => ({shape, float32: base64(new Uint8Array(Float32Array.from(values).buffer))});

/** Bytes as `pack_bytes` in widget.py gives them. */
async function packBytes(shape, bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate"));
  return {shape, deflated: base64(new Uint8Array(await new Response(stream).arrayBuffer()))};
}

/** The k likeliest tokens as [[token, probability]], and what they leave to all others. Tokens that look the same are one. */
function bars(share, texts, k) {
  const found = new Map();
  for (const i of largest(share, 3 * k)) found.set(texts[i], (found.get(texts[i]) ?? 0) + share[i]);
  const pairs = [...found].sort((a, b) => b[1] - a[1]).slice(0, k);
  const left = 1 - pairs.reduce((sum, [, p]) => sum + p, 0);
  return /** @type {[[string, number][], number]} */ ([pairs.map(([token, p]) => [token, brief(p)]), left > 1e-6 ? brief(left) : 0]);
}

/** The answer, or with `refused` a sentence that says why there is none. */
async function orRefused(refused, answer) {
  try {
    return await answer();
  } catch (error) {
    if (error instanceof Refused) return {...refused, error: error.message};
    throw error;
  }
}

async function nextToken({data, model}, {path, turn}) {
  return orRefused({...data, nodes: [], path, turn}, async () => {
    const gpt = await model();
    const share = softmax(await gpt.next(gpt.begin([...data.prompt, ...path].join(""))));
    const says = bars(share, gpt.texts, data.nodes[0][1][0][0].length);
    return {...data, nodes: [[path, [says]]], shown: {...data.shown, ...shownOtherwise([...path, ...says[0].map(([token]) => token)])}, path, turn, error: ""};
  });
}

async function write({data, browser, model}, message) {
  const refused = {...data, asked: message, answer: null};
  return orRefused(refused, async () => {
    const k = Math.max(1, ...data.tree.map(([, pairs]) => pairs.length));
    const found = await suggest(await model(), message.text, k, browser.length ?? 4);
    return {...refused, answer: found.map(([text, p]) => [text, brief(p), readable(text)]), error: ""};
  });
}

/** One place as `stored_place` in generate.py gives it; token and ids are numbers of words, which are looked up by `number`. */
export function storedPlace(token, logits, keep, {temperatures, ps}, number) {
  const V = logits.length;
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || b - a); // of equal ones the later first
  const ordered = Float64Array.from(order, (i) => logits[i]);
  let n = Math.min(keep, V);
  while (n < V && ordered[n] >= ordered[n - 1]) n++; // equal ones are not parted
  const rank = order.indexOf(token);
  const place = {ids: order.slice(0, n).map(number), logits: pack([n], ordered.subarray(0, n)), others: null, token: number(token), rank, logit: ordered[rank]};
  if (n === V) return place;
  const others = new Float64Array((temperatures.length - 1) * ps.length * 3);
  temperatures.slice(1).forEach((temperature, t) => {
    const x = ordered.map((logit) => (logit - ordered[0]) / temperature);
    const w = x.map(Math.exp);
    const total = w.reduce((a, b) => a + b, 0);
    const fromLeast = new Float64Array(V);
    for (let i = 0, sum = 0; i < V; i++) fromLeast[i] = sum += w[V - 1 - i] / total;
    const sums = new Float64Array(V - n), means = new Float64Array(V - n);
    for (let i = n, sum = 0, mean = 0; i < V; i++) [sums[i - n], means[i - n]] = [sum += w[i], mean += w[i] * x[i]];
    ps.forEach((p, j) => {
      let out = 0;
      if (p < 1) while (out < V && fromLeast[out] <= 1 - p) out++;
      const count = V - n - out;
      if (count > 0) others.set(sums[count - 1] > 0 ? [count, Math.log(sums[count - 1]), means[count - 1] / sums[count - 1]] : [count, -Infinity, 0], 3 * (t * ps.length + j));
    });
  });
  return {...place, others: pack([temperatures.length - 1, ps.length, 3], others)};
}

const SECONDS = 0.2; // how long is written before the page shows it

async function generate(view, message) {
  const {data, model} = view;
  const shown = (done, error = "") => ({...data, text: view.text ?? data.text, written: view.text?.places.length ?? 0, turn: message.turn, done, error});
  return orRefused(shown(true), async () => {
    const gpt = await model();
    if (message.source !== undefined) {
      const ids = gpt.begin(checkText(message.source));
      const [stored, room] = [data.text.places.length, gpt.about.max_length - ids.length + 1]; // as many are written as in the stored text
      if (room < 1) gpt.checkLength(ids.length);
      view.text = null;
      view.writing = {...message, ids, most: Math.min(stored, room), full: room < stored, past: undefined, inputs: ids, words: new Map(), prompt: message.source.match(/\s?\S+|\s/gu) ?? [], places: []};
    }
    if (message.stop || !view.writing) return shown(true);
    const {writing} = view;
    const number = (i) => writing.words.get(i) ?? writing.words.set(i, writing.words.size).get(i);
    for (const end = performance.now() + 1000 * SECONDS; performance.now() < end && writing.places.length < writing.most;) {
      const {logits, present} = await gpt.read(writing.inputs, writing.past);
      const row = gpt.row(logits, writing.inputs.length - 1);
      const token = drawn(row, writing.temperature, writing.k, writing.p);
      writing.places.push(storedPlace(token, row, data.ks.at(-1), data, number));
      [writing.past, writing.inputs] = [present, [token]];
      if (token === gpt.end) [writing.most, writing.full] = [writing.places.length, false];
    }
    view.text = {prompt: writing.prompt.map(visible), words: [...writing.words.keys()].map((i) => visible(gpt.words[i])), places: writing.places};
    const done = writing.places.length === writing.most;
    return shown(done, done && writing.full ? `Stopped: all ${grouped(gpt.about.max_length)} places of the model are taken.` : "");
  });
}

async function fillMask({data, model}, message) {
  return orRefused({...data, answer: null, asked: message}, async () => {
    const bert = await model();
    const tokens = message.tokens ?? bert.tokenizer.pieces(message.source);
    if (!tokens.length) throw new Refused(`The text is empty: write a sentence, with ${data.mask} in place of a word.`);
    const {logits} = await bert.read(bert.tokenizer.framed(tokens));
    const k = Math.max(...data.examples.flatMap(({places}) => places.map(([[pairs]]) => pairs.length)));
    const places = tokens.flatMap((token, i) => (token === data.mask ? [[bars(softmax(bert.row(logits, i + 1)), bert.tokenizer.tokens, k)]] : []));
    const answer = {tokens, names: [""], places};
    const shown = shownOtherwise([...tokens, ...places.flatMap(([[pairs]]) => pairs.map(([token]) => token))]);
    return {...data, shown: {...data.shown, ...shown}, answer, asked: message, error: ""};
  });
}

async function heads(view, {source}) {
  const {data, model} = view;
  view.shown ??= data;
  return orRefused({...view.shown, typed: source}, async () => {
    if (!source.trim()) throw new Refused("The text is empty: write a sentence.");
    const reader = await model();
    const ids = reader.begin ? reader.begin(source) : reader.tokenizer.encode(source);
    reader.checkLength(ids.length);
    const after = ids.indexOf(reader.tokenizer.ids.get("[SEP]")); // of BERT: what stands behind it is the second text
    const segments = ids.map((_, i) => Number(i > after));
    const {weights: {dims, data: weights}} = await (reader.begin ? reader.read(ids) : reader.read(ids, segments));
    const tokens = ids.map((id) => readable(reader.words[id]));
    const packed = await packBytes(dims, Uint8Array.from(weights, (w) => Math.round(255 * w)));
    const last = tokens.length - (reader.begin ? 1 : 2); // of the text: a BERT's ends with [SEP]
    const query = data.query === data.target.length - 1 ? last : Math.min(data.query, last);
    view.shown = {...data, tokens, target: tokens, levels: 255, weights: packed, query, error: ""};
    return {...view.shown, typed: source};
  });
}

const MOST = 80; // symbols of a source: a recurrent model has no limit of its own, and each step looks at all of them

/** `browser` has the `words` by number, the `layer` and `heads` to show, and what is said if others are typed. */
async function alignment(view, {source}) {
  const {data, browser, model} = view;
  const {words: known, layer = 0, heads = [0]} = browser;
  view.shown ??= data;
  return orRefused(view.shown, async () => {
    const translator = await model();
    const numbers = new Map(known.map((word, i) => [word, i]));
    const words = source.replaceAll("’", "'").replaceAll(/[.,]/g, " $&").split(/\s+/).filter(Boolean).map((word) => (numbers.has(word) ? word : word.toLowerCase())); // names have capitals
    const unknown = [...new Set(words.filter((word) => !numbers.has(word)))];
    const named = browser.refused.includes("…"); // "…" stands for the unknown words; without it the sentence says what to type
    if (!words.length) throw new Refused(named ? "Write a sentence first." : browser.refused);
    if (unknown.length) throw new Refused(browser.refused.replace("…", unknown.join(", ")));
    if (words.length > MOST) throw new Refused(`${words.length} symbols take too long here: write at most ${MOST}.`);
    const {end} = translator.about;
    const read = words.map((word) => numbers.get(word));
    const {written, looks} = await translator.translate(end === null ? read : [...read, end]);
    const shown = (ids) => ids.map((i) => (i === end ? "end" : known[i]));
    const [, H, S] = looks[0].dims;
    const weights = looks.flatMap(({data: w}) => Array.from({length: S}, (_, s) =>
      heads.reduce((sum, head) => sum + w[(layer * H + head) * S + s], 0) / heads.length));
    view.shown = {...data, source: end === null ? words : [...words, "end"], target: shown(written), weights: pack([written.length, S], weights), step: 0, error: ""};
    return view.shown;
  });
}

const CHAT = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"];

export function inPercent(p) {
  if (p > 0 && p < 0.0005) return "< 0.1 %";
  return p >= 0.9995 && p < 1 ? "> 99.9 %" : `${(100 * p).toFixed(1)} %`;
}

/** A model's answer to the last request, after its own answers to those before: {said, tokens, ended}. */
async function replied(view, m, text, requests) {
  const {data, browser, model} = view;
  view.replies ??= new Map();
  const key = JSON.stringify([m, text, requests]);
  if (view.replies.has(key)) return view.replies.get(key);
  const turns = [text ? `${text}\n${requests[0]}` : requests[0]];
  for (let n = 1; n < requests.length; n++) turns.push((await replied(view, m, text, requests.slice(0, n))).said, requests[n]);
  const plain = browser.plain?.includes(data.models[m]); // a model that has never seen the template
  const held = CHAT.find((token) => turns.some((turn) => turn.includes(token)));
  if (held && !plain) throw new Refused(`A turn holds ${held}, a token of the template: leave it out.`);
  const roles = turns.map((turn, i) => `${i % 2 ? "<|assistant|>" : "<|user|>"}${turn}<|end|>`);
  const tokens = await reply(await model(data.models[m]), plain ? `${turns.join("\n")}\n` : `${roles.join("")}<|assistant|>`, plain ? 16 : 60);
  const ended = tokens.at(-1)[0] === "<|end|>";
  const said = (ended ? tokens.slice(0, -1) : tokens).map(([token]) => token).join("");
  view.replies.set(key, {said, ended, tokens: tokens.map(([token, p]) => [asRead(token), brief(p), inPercent(p)])});
  return view.replies.get(key);
}

async function chat(view, message) {
  const {model: m, text, requests} = message;
  const {error, ...answer} = await orRefused({tokens: [], ended: true}, () => replied(view, m, text, requests));
  const answers = view.data.models.map(() => requests.map(() => null));
  answers[m][requests.length - 1] = {verdict: "", ...answer, ...(error ? {error} : {})};
  return {...view.data, conversation: {text, requests, answers}, asked: message};
}

const unpacked = ({float32}) => new Float32Array(Uint8Array.from(atob(float32), (c) => c.charCodeAt(0)).buffer);

async function overlay({data, model}, message) {
  const pixels = Uint8Array.from(atob(message.pixels), (c) => c.charCodeAt(0));
  const [height, width] = data.size;
  const weights = [];
  for (const [i, name] of data.names.entries()) {
    const {data: found, dims: [H, N]} = await (await model(name)).look(pixels, data.size);
    const mean = Float32Array.from({length: N}, (_, p) => Array.from({length: H}, (_, head) => found[head * N + p]).reduce((a, b) => a + b) / H);
    const rows = data.mean ? [...mean, ...found] : [...found];
    const {shape: [n, all]} = data.weights[i];
    weights.push(pack([n + 1, all, N], [...unpacked(data.weights[i]), ...rows]));
  }
  const canvas = new OffscreenCanvas(width, height);
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  for (let i = 0; i < height * width; i++) image.data.set([...pixels.subarray(3 * i, 3 * i + 3), 255], 4 * i);
  pen.putImageData(image, 0, 0);
  const png = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
  const without = Object.fromEntries(["inside", "outlines"].flatMap((name) => (data[name] ? [[name, [...data[name], null]]] : [])));
  return {...data, ...without, weights, images: [...data.images, `data:image/png;base64,${base64(png)}`], asked: message, error: ""};
}

export const ANSWERS = {alignment, next_token: nextToken, write, generate, fill_mask: fillMask, heads, overlay, chat};
