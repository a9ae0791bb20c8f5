// What stands still, dark on light: a listing, a diagram. In the dark it turns light on dark; hues stay.

import {followTheme} from "./theme.js";

export function mount(el) {
  followTheme(el, (dark) => { el.style.filter = dark ? "invert(0.9) hue-rotate(180deg)" : ""; });
}
