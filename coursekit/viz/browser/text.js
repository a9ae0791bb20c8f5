// Text as Python's side of the widgets has it: what is refused, and how a token is shown (viz/tokens.py, viz/write.py).

/** What the reader can mend: its message is shown in the widget, in one sentence. */
export class Refused extends Error {}

/** A whole number with a comma after each thousand. */
export const grouped = (n) => n.toLocaleString("en-US");

/** Refuse half a character, which no UTF-8 can hold. */
export function checkText(text) {
  const half = text.match(/\p{Cs}/u);
  if (half) throw new Refused(`the text has half of a character (U+${text.charCodeAt(half.index).toString(16).toUpperCase()}): leave it out`);
  return text;
}

const MARKS = {" ": "·", "\n": "⏎", "\t": "⇥"};
const UNSEEN = /[\p{C}\p{Z}]/u;
const SELECTOR = /[\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/u;

/** A text in which every character can be seen and none turns or joins the others around it. */
export function visible(text) {
  return Array.from(text, (char, i) => {
    if (MARKS[char]) return MARKS[char];
    if (UNSEEN.test(char) || (i === 0 && SELECTOR.test(char))) return `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    return (i === 0 && /\p{M}/u.test(char) ? "◌" : "") + char; // a mark needs something to stand on
  }).join("");
}

const words = (text) => text.split(" ").map((word) => (word ? visible(word) : "")).join(" ");

/** A text whose spaces stay spaces, but for those at its ends; all else that leaves no ink is made visible. */
export function readable(text) {
  const [, start, inner, end] = text.match(/^( *)(.*?)( *)$/s);
  return inner ? visible(start) + words(inner) + visible(end) : visible(text);
}

/** A token whose spaces stay spaces; all else that leaves no ink is made visible. */
export const asRead = words;

/** Tokens that are not shown as they are, with what is shown for them. */
export function shownOtherwise(tokens) {
  return Object.fromEntries([...new Set(tokens)].map((token) => [token, visible(token)]).filter(([token, shown]) => token !== shown));
}
