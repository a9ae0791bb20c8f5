// WordPiece with BERT's normalisation, as coursekit/text/wordpiece.py does it: reads the tokenizer.json of save_tokenizer.

import {specialOf, split} from "./bpe.js";

const LONGEST_WORD = 100; // characters; longer ones are unknown
const CHUNK = /[^\t\n\r\p{Z}]+/gu;
export const WORD = /[!-/:-@[-`{-~\p{P}]|[^\t\n\r\p{Z}!-/:-@[-`{-~\p{P}]+/gu;
// the blocks of Chinese characters, with the library's 2B920 for BERT's 2B820
const CHINESE = /[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/u;

/** BERT's normal form of a text without spaces. */
export function normalize(text, lowercase = true) {
  let found = Array.from(text, (char) => {
    if (CHINESE.test(char)) return ` ${char} `;
    return char === "\ufffd" || /[\p{Cc}\p{Cf}\p{Co}]/u.test(char) ? "" : char;
  }).join("");
  if (!lowercase) return found;
  if (/\P{ASCII}/u.test(text)) found = found.normalize("NFD").replace(/\p{Mn}/gu, "");
  return Array.from(found, (char) => char.toLowerCase()).join(""); // letter by letter, so that a last sigma stays "σ"
}

export class WordPiece {
  constructor({model: {vocab}, added_tokens: added, normalizer: {lowercase}}) {
    this.ids = new Map(Object.entries(vocab));
    this.tokens = [];
    for (const [token, id] of this.ids) this.tokens[id] = token;
    this.special = specialOf(added.map(({content}) => content));
    this.lowercase = lowercase;
  }

  /** The pieces of a word, the longest first; a word that no pieces make up is [UNK] as a whole. */
  word(word) {
    const [letters, found] = [Array.from(word), []];
    let start = 0;
    while (start < letters.length && letters.length <= LONGEST_WORD) {
      let end = letters.length, piece;
      for (; end > start; end--) {
        piece = (start ? "##" : "") + letters.slice(start, end).join("");
        if (this.ids.has(piece)) break;
      }
      if (end === start) break;
      found.push(piece);
      start = end;
    }
    return start === letters.length ? found : ["[UNK]"];
  }

  /** The tokens of a text, without [CLS] and [SEP]. */
  pieces(text) {
    return split(text, this.special).flatMap(([part, special]) =>
      special ? [part] : (part.match(CHUNK) ?? []).flatMap((chunk) =>
        (normalize(chunk, this.lowercase).match(WORD) ?? []).flatMap((word) => this.word(word))));
  }

  encode(text) {
    return this.framed(this.pieces(text));
  }

  /** The ids of tokens, in the frame of [CLS] and [SEP]. */
  framed(tokens) {
    return ["[CLS]", ...tokens, "[SEP]"].map((token) => this.ids.get(token));
  }
}
