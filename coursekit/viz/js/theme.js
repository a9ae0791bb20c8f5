// Light or dark: what everything that follows the theme begins with.

/** Whether the first opaque background behind an element is dark. Theme attributes differ per host; this does not. */
export function isDark(el) {
  for (let node = el; node; node = node.parentElement ?? node.getRootNode().host) {
    const [r, g, b, a = 1] = (getComputedStyle(node).backgroundColor.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    if (a > 0.5) return 0.299 * r + 0.587 * g + 0.114 * b < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Call `change(dark)` now, and again whenever what is behind `el` may have changed. */
export function followTheme(el, change) {
  const follow = () => change(isDark(el));
  follow();
  requestAnimationFrame(follow); // a notebook may attach the element only now
  const observer = new MutationObserver(follow);
  for (const node of [document.documentElement, document.body]) observer.observe(node, {attributes: true});
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow);
}

