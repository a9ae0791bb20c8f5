// What a model restores: the image clean, corrupted and restored, and the error of each pixel as a heat map.
// data: {title, size: [height, width], labels, images: {clean, corrupted, restored: [address]}, errors: pack_bytes (n, height, width)
//   of round(255 * error / largest), largest, means: [[corrupted, others]] of each image, overall: [corrupted, others]; null where
//   there is no such pixel, outlines: [SVG path in pixels]}

import {inflate, num, h, viridis, paint, LEGEND, PICTURE, CONTROLS, strip, root, scaleOf} from "./shared.js";

const STYLE = `${PICTURE}${LEGEND}${CONTROLS}
.ck p[aria-live] { min-height:1.45em; color:var(--ink); font-size:16px; }
.ck .views { display:grid; grid-template-columns:repeat(auto-fit, minmax(150px, 1fr)); gap:10px; }
.ck figure { margin:0; min-width:0; max-width:260px; }
.ck figcaption { color:var(--soft); font-size:14px; margin-bottom:3px; }
.ck figure.swapped figcaption { color:var(--accent2); font-weight:600; }
.ck figure.swapped .picture { outline:3px solid var(--accent2); }
.ck .row button[aria-pressed=true] { border-color:var(--accent2); box-shadow:inset 0 0 0 1px var(--accent2); }
.ck table { border-collapse:separate; border-spacing:0; width:auto; margin:6px 0 0; font-size:15px; }
.ck tr { background:none !important; } /* notebooks stripe their tables */
.ck th, .ck td { padding:2px 14px 2px 0; text-align:left; font-weight:500; color:var(--ink); border:0; }
.ck thead th { color:var(--soft); font-size:13px; vertical-align:bottom; }
.ck td { font-variant-numeric:tabular-nums; }
.ck caption { text-align:left; color:var(--soft); font-size:14px; }
`;
const KINDS = ["clean", "corrupted", "restored"];

export function mount(el, data) {
  if (!globalThis.DecompressionStream) return {update() {}}; // an old browser: the static picture stays
  let box, title, status, images, views, pictures, heat, line, body, swap, legend, which, restored, caption;
  let height, width, n, errors, shown, swapped, fresh = 0; // swapped: the clean image stands in the restored one's place

  async function update(next) {
    const turn = ++fresh;
    const {values} = await inflate(next.errors);
    if (turn !== fresh) return; // something newer has come meanwhile
    data = next;
    errors = values;
    [[height, width], n] = [data.size, data.labels.length];
    if (!box) build();
    [shown, swapped] = [0, false];
    title.textContent = data.title;
    box.style.setProperty("--aspect", `${width} / ${height}`);
    views.classList.toggle("fine", width < 128);
    line.setAttribute("viewBox", `0 0 ${width} ${height}`);
    which = strip(data.images.clean.map((src) => h("img", {src, alt: ""})), data.labels, (i) => { shown = i; look(); });
    images.replaceChildren(which.group);
    legend.replaceChildren("absolute error ", ...scaleOf("0", num(data.largest, 4)), " (mean of the channels, in units of 0 to 1). White line: what was corrupted");
    look();
  }

  function build() {
    box = root(el, STYLE, "Reconstruction", data.title);
    title = h("strong");
    status = h("p", {"aria-live": "polite"});
    images = h("div");
    pictures = KINDS.map((kind) => h("img", {alt: kind}));
    heat = h("canvas", {role: "img", "aria-label": "absolute error"});
    line = h("svg", {"aria-hidden": "true", preserveAspectRatio: "none"});
    caption = h("figcaption");
    const figure = (name, ...parts) => h("figure", {}, name, h("div", {class: "picture"}, ...parts));
    const named = (name) => h("figcaption", {}, name);
    restored = figure(caption, pictures[2]);
    views = h("div", {class: "views"}, figure(named("clean"), pictures[0]), figure(named("corrupted"), pictures[1]), restored, figure(named("absolute error"), heat, line));
    swap = h("button", {type: "button", onclick: () => { swapped = !swapped; look(); }}, "Clean in place of restored");
    legend = h("p", {class: "legend"});
    body = h("tbody");
    const head = ["", "on corrupted pixels", "on other pixels"].map((name) => (name ? h("th", {scope: "col"}, name) : h("td")));
    box.append(title, images, status, h("div", {class: "row"}, swap), views, legend,
      h("table", {}, h("caption", {}, "Mean absolute error"), h("thead", {}, h("tr", {}, ...head)), body));
  }

  const figureOf = (mean) => (mean === null ? "none" : num(mean, 4));

  /** Show what is chosen and say it. */
  function look() {
    which.show(shown);
    const label = data.labels[shown];
    KINDS.forEach((kind, k) => { pictures[k].src = data.images[kind][shown]; });
    if (swapped) pictures[2].src = data.images.clean[shown];
    pictures[2].alt = caption.textContent = swapped ? "clean, in its place" : "restored";
    restored.classList.toggle("swapped", swapped);
    swap.setAttribute("aria-pressed", swapped);
    const size = height * width;
    paint(heat, [height, width], errors.subarray(shown * size, (shown + 1) * size), (x) => viridis(x / 255).rgb);
    line.replaceChildren(h("path", {d: data.outlines[shown], class: "outline"}));
    const row = (name, means) => h("tr", {}, h("th", {scope: "row"}, name), ...means.map((mean) => h("td", {class: "number"}, figureOf(mean))));
    body.replaceChildren(row(label, data.means[shown]), ...(n > 1 ? [row(`all ${n} images`, data.overall)] : []));
    const [inside, outside] = data.means[shown].map(figureOf);
    status.textContent = `${label}: mean absolute error ${inside} on corrupted pixels, ${outside} on others.`;
  }

  update(data);
  return {update};
}
