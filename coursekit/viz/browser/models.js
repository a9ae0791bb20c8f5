// The exported models: their graphs run by ONNX Runtime Web, their tokenizers, and what all of them are asked for.

import {BPE} from "./bpe.js";
import {grouped, Refused} from "./text.js";
import {WordPiece} from "./wordpiece.js";

/** Softmax of logits, as float64. */
export function softmax(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Float64Array.from(logits, (x) => Math.exp(x - largest));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((x) => x / total);
}

/** The numbers of the k largest, the largest first; of equal ones the first is first. */
export const largest = (values, k) => Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, k);

/** What every model has: its session, and what was said of it when it was exported. */
class Model {
  constructor(ort, session, about) {
    this.ort = ort;
    this.session = session;
    this.about = about;
  }

  integers(ids) {
    return new this.ort.Tensor("int32", Int32Array.from(ids), [1, ids.length]);
  }

  /** Row t of a matrix (…, T, V). */
  row({data, dims}, t) {
    const V = dims.at(-1);
    return data.subarray(t * V, (t + 1) * V);
  }

  checkLength(n) {
    if (n > this.about.max_length) throw new Refused(`The text takes ${grouped(n)} tokens, and this model reads ${grouped(this.about.max_length)}: shorten it.`);
  }
}

/** A GPT. What it has read last is kept, so that a text that only grew is read on. */
export class GPT extends Model {
  constructor(ort, session, about, tokenizer) {
    super(ort, session, about);
    this.tokenizer = new BPE(tokenizer);
    this.end = this.tokenizer.ids.get("<|endoftext|>");
    this.texts = this.tokenizer.tokens.map((_, id) => this.tokenizer.decode([id]));
    this.words = this.tokenizer.tokens.map((_, id) => this.tokenizer.spelled(id));
    this.last = {ids: [], past: this.nothing()};
  }

  nothing() {
    const {layers, heads, size} = this.about;
    return new this.ort.Tensor("float32", new Float32Array(0), [2, layers, 1, heads, 0, size]);
  }

  /** The ids of a text, as the beginning of a document. */
  begin(text) {
    return [this.end, ...this.tokenizer.encode(text)];
  }

  /** Read ids after a past: logits (T, V), the new past, and the weights (L, H, T, S) of all heads. */
  async read(ids, past = this.nothing()) {
    return await this.session.run({ids: this.integers(ids), past});
  }

  /** The logits (V,) of the token after these. */
  async next(ids) {
    this.checkLength(ids.length);
    const n = this.last.ids.length;
    const grown = n < ids.length && this.last.ids.every((id, i) => id === ids[i]);
    const {logits, present} = await this.read(grown ? ids.slice(n) : ids, grown ? this.last.past : this.nothing());
    this.last = {ids, past: present};
    return this.row(logits, logits.dims[0] - 1);
  }
}

/** A BERT that fills in masked words. */
export class Bert extends Model {
  constructor(ort, session, about, tokenizer) {
    super(ort, session, about);
    this.tokenizer = new WordPiece(tokenizer);
    this.words = this.tokenizer.tokens;
  }

  /** Logits (T, V) of the word at each place, and the weights (L, H, T, T) of all heads. */
  async read(ids, segments = ids.map(() => 0)) {
    this.checkLength(ids.length);
    return await this.session.run({ids: this.integers(ids), segments: this.integers(segments)});
  }
}

/** A ViT: where the class token looks. */
export class ViT extends Model {
  /** Weights (H, N) of the class token of the last block, for pixels (height, width, 3) in 0..255. */
  async look(pixels, [height, width]) {
    const [black, white] = this.about.range;
    const n = height * width;
    const numbers = Float32Array.from({length: 3 * n}, (_, i) => black + (white - black) * pixels[3 * (i % n) + Math.floor(i / n)] / 255);
    return (await this.session.run({images: new this.ort.Tensor("float32", numbers, [1, 3, height, width])})).weights;
  }
}

/** A translator: the likeliest symbol at each step, until it ends. */
export class Translator extends Model {
  /** The symbols that it writes for a source, and where it looked at each: weights (L, H, S). */
  async translate(source) {
    this.checkLength(source.length);
    const {end, never, max_length: most} = this.about;
    const steps = end === null ? source.length : Math.min(source.length + 50, most);
    const written = [], looks = [];
    while (written.length < steps && (end === null || written.at(-1) !== end)) {
      const {logits, weights} = await this.session.run({source: this.integers(source), target: this.integers([...written, 0])});
      if (never !== null) logits.data[never] = -Infinity;
      written.push(largest(logits.data, 1)[0]);
      looks.push(weights);
    }
    return {written, looks};
  }
}

export const KINDS = {gpt: GPT, bert: Bert, vit: ViT, translator: Translator};
