// Runs the models of a page, one question after the other: {view, data, message} in, {view, data} or {view, failed} out.

import {ANSWERS} from "./replies.js";
import {KINDS} from "./models.js";

const here = (name) => new URL(name, import.meta.url).href;
const fetched = async (name) => {
  const found = await fetch(here(name));
  if (!found.ok) throw new Error(`${name}: ${found.status}`);
  return found;
};

const once = (load) => {
  const known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, load(name).catch((reason) => { known.delete(name); throw reason; })); // it may come next time
    return known.get(name);
  };
};

const runtime = once(async () => {
  // @ts-ignore: it is put beside this file when the site is built
  const ort = await import("./ort.js");
  ort.env.wasm.numThreads = 1; // more would need headers that not every server sends
  ort.env.wasm.wasmPaths = {mjs: here("ort-wasm.js")};
  ort.env.wasm.wasmBinary = await (await fetched("ort-wasm.wasm")).arrayBuffer();
  return ort;
});

const tokenizer = once(async (name) => (await fetched(name)).json());

/** Weights that several models share are fetched once. */
const weights = once(async (name) => {
  const plain = (await fetched(name)).body.pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
});

export const model = once(async (name) => {
  const about = await (await fetched(`${name}.json`)).json();
  const [ort, graph, words, ...data] = await Promise.all([runtime(""), fetched(`${name}.onnx`).then((found) => found.arrayBuffer()),
    about.tokenizer && tokenizer(about.tokenizer), ...about.weights.map(weights)]);
  const externalData = about.weights.map((path, i) => ({path, data: data[i]}));
  const session = await ort.InferenceSession.create(new Uint8Array(graph), {executionProviders: ["wasm"], externalData});
  return new KINDS[about.kind](ort, session, about, words);
});

const views = new Map();

async function answer({view: id, data, message}) {
  if (data) views.set(id, {data, browser: data.browser, model: (name) => model(typeof data.browser.model === "string" ? data.browser.model : data.browser.model[name])});
  try {
    const view = views.get(id);
    postMessage({view: id, data: await ANSWERS[view.browser.widget](view, message)});
  } catch (error) {
    postMessage({view: id, failed: String(error)});
  }
}

let last = Promise.resolve(); // a model reads one text at a time
onmessage = ({data}) => { last = last.then(() => answer(data)); };
