// Byte-level byte-pair encoding, as coursekit/text/bpe.py does it: reads the tokenizer.json that save_tokenizer writes.

import {checkText} from "./text.js";

// GPT2 in text/pre_tokens.py; \s there is Unicode's white space, JavaScript's own is not
export const PRE_TOKEN = / ?\p{L}+|'(?:[stmd]|re|ve|ll)| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

/** One visible character for each of the 256 bytes, GPT-2's. */
const CHARACTERS = (() => {
  const seen = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 255 && b !== 173);
  let hidden = 256;
  return Array.from({length: 256}, (_, b) => String.fromCharCode(seen(b) ? b : hidden++));
})();
const BYTES = new Map(CHARACTERS.map((character, b) => [character, b]));

const encoder = new TextEncoder();
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");

const strict = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true});

/** The character that begins at byte i, and how many bytes it has. */
function character(bytes, i) {
  for (let length = 1; length <= Math.min(4, bytes.length - i); length++) {
    try {
      return /** @type {[string, number]} */ ([strict.decode(bytes.subarray(i, i + length)), length]);
    } catch { /* not yet a whole character */ }
  }
  return /** @type {[string, number]} */ ([`\\x${bytes[i].toString(16).padStart(2, "0")}`, 1]);
}

/** An expression that finds special tokens, the longest first, or null where there are none. */
export function specialOf(tokens) {
  const ordered = [...tokens].sort((a, b) => Array.from(b).length - Array.from(a).length);
  return ordered.length ? new RegExp(`(${ordered.map(escaped).join("|")})`) : null;
}

/** A text cut at its special tokens: [part, whether it is one]. */
export function split(text, special) {
  const parts = special ? checkText(text).split(special) : [checkText(text)];
  return parts.map((part, k) => /** @type {[string, boolean]} */ ([part, k % 2 === 1])).filter(([part]) => part);
}

export class BPE {
  constructor({model: {vocab, merges}, added_tokens: added}) {
    this.ids = new Map(Object.entries(vocab));
    this.tokens = [];
    for (const [token, id] of this.ids) this.tokens[id] = token;
    this.special = specialOf(added.map(({content}) => content));
    this.ranks = new Map(merges.map((pair, rank) => [Array.isArray(pair) ? pair.join(" ") : pair, rank]));
    this.bytes = this.tokens.map((token) => {
      const all = Array.from(token, (character) => BYTES.get(character));
      return all.includes(undefined) ? encoder.encode(token) : Uint8Array.from(/** @type {number[]} */ (all));
    });
  }

  /** The tokens of a pre-token: its bytes, then again and again the merge that was learned first. */
  word(word) {
    let parts = Array.from(encoder.encode(word), (b) => CHARACTERS[b]);
    while (parts.length > 1) {
      let [best, pair] = [Infinity, ""];
      for (let i = 1; i < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i - 1]} ${parts[i]}`) ?? Infinity;
        if (rank < best) [best, pair] = [rank, `${parts[i - 1]} ${parts[i]}`];
      }
      if (best === Infinity) break;
      const merged = [];
      for (let i = 0; i < parts.length; i++) {
        if (i + 1 < parts.length && `${parts[i]} ${parts[i + 1]}` === pair) merged.push(parts[i] + parts[++i]);
        else merged.push(parts[i]);
      }
      parts = merged;
    }
    return parts;
  }

  encode(text) {
    return split(text, this.special).flatMap(([part, special]) =>
      special ? [this.ids.get(part)] : (part.match(PRE_TOKEN) ?? []).flatMap((word) => this.word(word).map((token) => this.ids.get(token))));
  }

  /** The text of tokens; bytes that are no UTF-8 together become U+FFFD. */
  decode(ids) {
    return new TextDecoder("utf-8", {ignoreBOM: true}).decode(Uint8Array.from(ids.flatMap((id) => [...this.bytes[id]])));
  }

  /** A token as a reader can tell it from all others: bytes that are no UTF-8 alone as \xd7. */
  spelled(id) {
    const bytes = this.bytes[id];
    let text = "";
    for (let i = 0; i < bytes.length;) {
      const [char, length] = character(bytes, i);
      text += char;
      i += length;
    }
    return text;
  }
}
