// The views of an image that DINO sees: the image with their boxes, the views beside it, and the pairs that count.
// data: {title, size: [height, width], images: [address], views: [[address]] of each image, the global ones first,
//   globals: how many of them these are, boxes: [[[top, left, height, width]]] in pixels of the image}

import {num, h, PICTURE, CONTROLS, choices, strip, root} from "./shared.js";

const STYLE = `${PICTURE}${CONTROLS}
.ck { --global:#d55e00; --local:#0072b2; } /* Okabe and Ito's vermilion and blue */
.ck p[aria-live] { min-height:2.9em; color:var(--ink); font-size:16px; }
.ck .sides { display:flex; gap:18px; flex-wrap:wrap; align-items:flex-start; }
.ck .large { flex:1 1 300px; min-width:0; max-width:360px; }
.ck .small { flex:1 1 280px; min-width:0; }
.ck .picture { cursor:crosshair; }
.ck .picture rect { stroke:var(--colour); stroke-width:2; opacity:.75; }
.ck .picture rect.casing { stroke:#fff; stroke-width:4; opacity:.6; }
.ck .picture rect.local { stroke-dasharray:6 4; }
.ck .picture rect.chosen { stroke-width:4; opacity:1; }
.ck .picture rect.casing.chosen { stroke-width:8; opacity:1; }
.ck .picture .tag { background:var(--colour); }
.ck .picture .tag.global { color:#000; }
.ck .global { --colour:var(--global); }
.ck .local { --colour:var(--local); }
.ck .views { gap:8px; align-items:flex-end; }
.ck .views button { display:flex; flex-direction:column; align-items:center; gap:3px; padding:3px 4px; font-size:13px; line-height:1.2; min-width:0;
  border:2px solid transparent; background:none; }
.ck .views button[aria-pressed=true] { border-color:transparent; box-shadow:none; font-weight:600; }
.ck .views button.chosen { border-color:var(--ink); background:var(--field); }
.ck .views img { width:var(--side); max-width:none; margin:0; box-sizing:content-box; border:4px solid var(--colour); }
.ck .views .local img { border-style:dashed; }
.ck .views .global { --side:104px; }
.ck .views .local { --side:60px; }
.ck .views i { flex-basis:100%; height:0; }
.ck .pairs { overflow-x:auto; padding:3px 3px 6px; } /* zoomed, its last row would be cut */
.ck table { border-collapse:separate; border-spacing:2px; width:auto; margin:0; font-size:13px; }
.ck .sides + p { margin-top:10px; }
.ck p b { color:var(--ink); }
.ck tr { background:none !important; } /* notebooks stripe their tables */
.ck th, .ck td { padding:2px 5px; text-align:center; font-weight:400; color:var(--ink); border:1px solid transparent; white-space:nowrap; }
.ck tbody th, .ck thead th:first-child { text-align:left; }
.ck td { background:var(--field); min-width:30px; }
.ck td.same { background:none; color:var(--soft); font-size:12px; }
.ck th.chosen { font-weight:700; }
.ck td.chosen { border-color:var(--accent); color:var(--accent); font-weight:700; }
@media (max-width:520px) { .ck .pairs th, .ck .pairs td { padding:2px 1px; min-width:22px; } }
`;

export function mount(el, data) {
  let title, status, images, image, drawing, tag, picture, side, views, counted, table, which, V, G, height, width;
  let shown, chosen, pointed; // the image; the view that stays, and the one that is pointed at, or null

  function build() {
    const box = root(el, STYLE, "Crops", data.title);
    title = h("strong");
    status = h("p", {"aria-live": "polite"});
    images = h("div");
    image = h("img", {alt: ""});
    drawing = h("svg", {"aria-hidden": "true", preserveAspectRatio: "none"});
    tag = h("span", {"aria-hidden": "true"});
    picture = h("div", {class: "picture", role: "group", "aria-label": "The image with the boxes of its views",
      onpointermove: (e) => point(nearest(e)), onpointerleave: () => point(null), onclick: (e) => choose(nearest(e))}, image, drawing, tag);
    side = h("div", {class: "small"});
    counted = h("p");
    table = h("div", {class: "pairs", tabindex: 0, role: "group", "aria-label": "Pairs of views"});
    box.append(title, images, status, h("div", {class: "sides"}, h("div", {class: "large"}, picture), side), counted, table);
    return box;
  }

  const box = build();

  function update(next) {
    data = next;
    [[height, width], G] = [data.size, data.globals];
    [shown, chosen, pointed] = [0, 0, null];
    V = data.boxes[0].length;
    title.textContent = data.title;
    box.style.setProperty("--aspect", `${width} / ${height}`);
    for (const part of [image, side]) part.classList.toggle("fine", width < 128);
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    which = strip(data.images.map((src) => h("img", {src, alt: ""})), data.images.map((_, i) => `Image ${i}`), (i) => { [shown, pointed] = [i, null]; open(); });
    images.replaceChildren(which.group);
    const buttons = Array.from({length: V}, (_, j) => h("button", {type: "button", class: kind(j), onpointerenter: () => point(j), onpointerleave: () => point(null), onfocus: () => choose(j)}));
    views = choices("Views", buttons, choose, "views");
    if (V > G) buttons[G].before(h("i")); // the local ones begin a line of their own
    side.replaceChildren(views.group);
    open();
  }

  const kind = (j) => (j < G ? "global" : "local");
  const name = (j) => (j < G ? `global ${j}` : `local ${j - G}`);
  const percent = (j) => {
    const [, , h, w] = data.boxes[shown][j];
    return `${num(100 * h * w / (height * width), 1)} %`;
  };

  /** Show an image and its views. */
  function open() {
    which.show(shown);
    image.src = data.images[shown];
    side.querySelectorAll("button").forEach((button, j) => {
      const share = percent(j);
      button.replaceChildren(h("img", {src: data.views[shown][j], alt: ""}), h("span", {}, name(j)), h("span", {class: "number"}, share));
      button.setAttribute("aria-label", `${name(j)}, ${share} of the image`);
    });
    const rectangles = (j) => {
      const [top, left, h_, w] = data.boxes[shown][j];
      const at = {x: left, y: top, width: w, height: h_};
      return h("g", {"data-view": j}, h("rect", {...at, class: "casing"}), h("rect", {...at, class: kind(j)}));
    };
    // the chosen one is drawn last, over the others
    drawing.replaceChildren(...Array.from({length: V}, (_, j) => rectangles(j)));
    const student = (j) => h("th", {scope: "col", title: `student: ${name(j)}`, "aria-label": `student: ${name(j)}`}, `${kind(j)[0]}${j < G ? j : j - G}`);
    const pair = (i, j) => (i === j ? h("td", {class: "same"}, "same") : h("td", {}, h("span", {role: "img", "aria-label": "counts"}, "✓")));
    counted.replaceChildren(h("b", {}, `${G * (V - 1)} of ${G * V} pairs count`), ": teacher’s view ↓, student’s view → (g global, l local). A view is not compared with itself.");
    table.replaceChildren(h("table", {"aria-label": "Pairs of views"},
      h("thead", {}, h("tr", {}, h("td", {class: "same"}), ...Array.from({length: V}, (_, j) => student(j)))),
      h("tbody", {}, ...Array.from({length: G}, (_, i) => h("tr", {}, h("th", {scope: "row"}, `teacher: ${name(i)}`), ...Array.from({length: V}, (_, j) => pair(i, j)))))));
    look();
  }

  function point(j) {
    if (j === pointed) return;
    pointed = j;
    look();
  }

  function choose(j) {
    [chosen, pointed] = [j, null];
    look();
  }

  /** The view with the line that is nearest to the pointer. */
  function nearest({clientX, clientY}) {
    const frame = picture.getBoundingClientRect();
    const [x, y] = [(clientX - frame.left) / frame.width * width, (clientY - frame.top) / frame.height * height];
    const away = data.boxes[shown].map(([top, left, h, w]) => {
      const [dx, dy] = [Math.max(left - x, x - left - w), Math.max(top - y, y - top - h)]; // below 0 inside
      return dx < 0 && dy < 0 ? -Math.max(dx, dy) : Math.hypot(Math.max(dx, 0), Math.max(dy, 0));
    });
    return away.indexOf(Math.min(...away));
  }

  /** Mark the view that is meant, its box and its pairs, and say it. */
  function look() {
    const j = pointed ?? chosen;
    views.show(chosen);
    side.querySelectorAll("button").forEach((button, i) => button.classList.toggle("chosen", i === j));
    drawing.querySelectorAll("rect").forEach((rect) => rect.classList.toggle("chosen", rect.parentNode.dataset.view === String(j)));
    drawing.append(drawing.querySelector(`[data-view="${j}"]`));
    const [top, left, , w] = data.boxes[shown][j];
    tag.className = `tag ${kind(j)}`;
    tag.textContent = name(j);
    const across = left + w / 2 < width / 2 ? `left:${100 * left / width}%` : `right:${100 * (1 - (left + w) / width)}%`;
    tag.style.cssText = `${across};top:${100 * Math.max(0, top) / height}%`;
    table.querySelectorAll("tbody tr").forEach((row, i) => {
      row.firstChild.classList.toggle("chosen", i === j);
      [...row.children].slice(1).forEach((cell, k) => cell.classList.toggle("chosen", i !== k && (i === j || k === j)));
    });
    table.querySelectorAll("thead th").forEach((head, k) => head.classList.toggle("chosen", k === j));
    status.textContent = `${name(j)[0].toUpperCase()}${name(j).slice(1)} shows ${percent(j)} of the image. ${said(j)}`;
  }

  /** With which views it is compared. */
  function said(j) {
    if (j >= G) return `The student sees it; it is compared with what the teacher says of ${listed(-1)}.`;
    const others = V > G ? `${V - 1} other views` : listed(j);
    return `As the student’s view it is compared with the teacher’s ${listed(j)}, as the teacher’s with the student’s ${others}.`;
  }

  const listed = (but) => Array.from({length: G}, (_, i) => i).filter((i) => i !== but).map(name).join(" and ");

  update(data);
  return {update};
}
