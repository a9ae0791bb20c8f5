// Weights of the class token over an image, head by head; the patches that hold most of them, and the object's true outline.
// data: {title, size: [height, width], grid: [rows, columns], images: [address], names: [of models], weights: [pack (n, H, N)] of
//   each, mass: percent, mean: whether the first row of
//   weights is the mean of the heads that follow, inside?: [[pixels of the object]] of each image and patch, outlines?: [SVG path in pixels],
//   asked?: the message that it answers, whose picture is the last one then, without an object, error?, live?}
// Live it asks about a picture of the reader's, with {pixels: base64 of its bytes, (height, width, 3), turn}.

import {unpack, num, h, viridis, paint, heatColour, LEGEND, PICTURE, CONTROLS, choices, words, strip, knob, root, scaleOf} from "./shared.js";

const STYLE = `${PICTURE}${LEGEND}${CONTROLS}
.ck p[aria-live] { min-height:2.9em; color:var(--ink); font-size:16px; }
.ck .sides { display:flex; gap:18px; flex-wrap:wrap; align-items:flex-start; }
.ck .large { flex:1 1 300px; min-width:0; max-width:360px; }
.ck .small { flex:1 1 280px; min-width:0; }
.ck .plain { max-width:168px; margin-bottom:8px; }
.ck .heated img { filter:grayscale(1); }
.ck .kept { stroke:#ff9a3c; stroke-width:3; }
.ck .large .behind { stroke-width:5; }
.ck .heads { gap:4px; margin-top:4px; }
.ck .heads button { padding:3px; min-width:0; border:2px solid transparent; background:none; font-size:13px; line-height:1.3; }
.ck .heads .picture { width:var(--side); margin:0 auto; }
.ck .heads .kept { stroke-width:1.5; }
.ck .heads .number { display:block; font-variant-numeric:tabular-nums; }
.ck .own input[type=file] { max-width:100%; }
.ck .own label { display:inline-flex; align-items:center; gap:6px; }
@media print { .ck .own { display:none; } }
.ck .own input[type=color] { width:44px; height:32px; padding:1px; border:1px solid var(--line); border-radius:6px; background:var(--field); }
.ck .own button[aria-pressed=true] { border-color:var(--accent); color:var(--accent); font-weight:700; box-shadow:inset 0 0 0 1px var(--accent); }
.ck .drawing { cursor:crosshair; touch-action:none; }
.ck .error { color:var(--accent2); min-height:0; }
`;
const SLACK = 1e-6; // as in overlay.py

export function mount(el, data, {emit}) {
  let title, status, error, file, draws, images, models, image, plain, canvas, drawing, picture, heads, legend, share, opacity;
  let which, chosen, all, rows, columns, height, width, n; // which: the images' buttons; all: of each model what `read` gives
  let shown, m, head, mass, seen; // the image, the model, the head; percent of weight that is kept, and of opacity
  let latest = null; // the picture that was asked about, until it is answered
  let before = 0; // the opacity before somebody began to draw
  let asked = null, turn = 0, elsewhere = false; // what is being worked on; whether another image has been chosen meanwhile

  function build() {
    const box = root(el, STYLE, "Attention overlay", data.title);
    title = h("strong");
    status = h("p", {"aria-live": "polite"});
    [images, models, heads] = [h("div"), h("div"), h("div")];
    image = h("img", {alt: ""});
    plain = h("img", {alt: "The image itself"});
    canvas = h("canvas", {"aria-hidden": "true"});
    drawing = h("svg", {"aria-hidden": "true", preserveAspectRatio: "none"});
    picture = h("div", {class: "picture"}, image, canvas, drawing);
    legend = h("p", {class: "legend"});
    share = knob("Share of weight", 1, 100, (x) => `${x} %`, (x) => { mass = x; look(); });
    opacity = knob("Heat map", 0, 100, (x) => `${x} %`, (x) => { seen = x; look(); });
    error = h("p", {class: "error", role: "alert"});
    box.append(title, ...(data.live ? [own()] : []), images, models, error, status, h("div", {class: "sides"},
      h("div", {class: "large"}, picture, legend),
      h("div", {class: "small"}, h("div", {class: "picture plain"}, plain), h("div", {class: "row"}, share.label), h("div", {class: "row"}, opacity.label), heads)));
    return box;
  }

  const box = build();

  function update(next) {
    if (all && next.asked && next.asked.turn !== asked) return; // something newer has been asked meanwhile
    asked = latest = null;
    error.textContent = next.error ?? "";
    if (next.error && all) return look(); // what was shown stays
    data = next;
    [[rows, columns], [height, width], n] = [data.grid, data.size, data.images.length];
    if (!data.asked || !all) [shown, m, head, mass, seen] = [0, 0, 0, data.mass, 60];
    if (data.asked && !elsewhere) shown = n - 1; // what else was chosen stays
    all = data.weights.map(read);
    title.textContent = data.title;
    box.style.setProperty("--aspect", `${width} / ${height}`);
    for (const shows of [image, plain]) shows.classList.toggle("fine", width < 128);
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    which = strip(data.images.map((src) => h("img", {src, alt: ""})), data.images.map((_, i) => (isOwn(i) ? "Your picture" : `Image ${i}`)), choose);
    images.replaceChildren(which.group);
    chosen = {model: words("Model", data.names, (i) => { error.textContent = ""; open(i); })};
    chosen.model.group.hidden = data.names.length < 2;
    models.replaceChildren(chosen.model.group);
    open(m);
  }

  function choose(i) {
    error.textContent = "";
    if (file) file.value = ""; // its name would stand beside another picture
    [latest, shown, elsewhere] = [null, i, Boolean(asked)];
    look();
  }

  const isOwn = (i) => Boolean(data.asked) && i === n - 1; // what has been asked is the last one

  // --- a picture of the reader's --------------------------------------------------------------------------------

  function own() {
    const colour = h("input", {type: "color", value: "#d02020"});
    file = h("input", {type: "file", accept: "image/*", "aria-label": "Load a picture", onchange: async () => {
      error.textContent = "";
      const loaded = file.files[0] && await createImageBitmap(file.files[0]).catch(() => null);
      if (loaded) {
        const scale = Math.max(width / loaded.width, height / loaded.height); // its middle, as large as it can be
        const [wide, high] = [scale * loaded.width, scale * loaded.height];
        ask((pen) => pen.drawImage(loaded, (width - wide) / 2, (height - high) / 2, wide, high));
      } else if (file.files[0]) {
        file.value = ""; // it is not what is shown
        error.textContent = "This browser cannot read that file as a picture: choose a PNG or a JPEG.";
      }
    }});
    draws = h("button", {type: "button", "aria-pressed": "false", onclick: () => {
      error.textContent = "";
      const on = draws.getAttribute("aria-pressed") !== "true";
      draws.setAttribute("aria-pressed", on);
      picture.classList.toggle("drawing", on);
      [seen, before] = on ? [0, seen] : [seen || before, 0]; // one sees what one draws on
      look();
    }}, "Draw on it");
    const fill = h("button", {type: "button", onclick: () => { file.value = ""; ask((pen) => { pen.fillStyle = colour.value; pen.fillRect(0, 0, width, height); }); }}, "Fill");
    let line = null; // the points of the line that is being drawn
    const at = (event) => {
      const {left, top, width: wide, height: high} = picture.getBoundingClientRect();
      return [(event.clientX - left) / wide * width, (event.clientY - top) / high * height];
    };
    const stroke = (pen) => {
      Object.assign(pen, {strokeStyle: colour.value, lineWidth: width / 12, lineCap: "round", lineJoin: "round"});
      pen.beginPath();
      pen.moveTo(line[0][0] - 0.01, line[0][1]); // a line to where it begins would be none, and a mere click not seen
      for (const [x, y] of line) pen.lineTo(x, y);
      pen.stroke();
    };
    picture.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || draws.getAttribute("aria-pressed") !== "true") return;
      event.preventDefault();
      picture.setPointerCapture(event.pointerId);
      line = [at(event)];
    });
    picture.addEventListener("pointermove", (event) => {
      if (!line) return;
      line.push(at(event));
      const d = `M${line.map(([x, y]) => `${x} ${y}`).join("L")}`;
      drawing.replaceChildren(h("path", {d, style: `stroke:${colour.value};stroke-width:${picture.clientWidth / 12};stroke-linecap:round;stroke-linejoin:round`}));
    });
    picture.addEventListener("pointercancel", () => { line = null; look(); });
    picture.addEventListener("pointerup", () => {
      if (line) ask((pen) => { pen.drawImage(latest ?? image, 0, 0, width, height); stroke(pen); });
      line = null;
    });
    return h("div", {class: "row own"}, h("label", {class: "typed"}, "Your picture:", file), draws, h("label", {}, "Colour ", colour), fill);
  }

  /** Ask about the picture that `draw` makes. */
  function ask(draw) {
    const pen = h("canvas", {width, height}).getContext("2d", {willReadFrequently: true});
    pen.imageSmoothingQuality = "high";
    pen.fillStyle = "#fff"; // behind what is transparent
    pen.fillRect(0, 0, width, height);
    draw(pen);
    latest = pen.canvas;
    const {data: all} = pen.getImageData(0, 0, width, height);
    let text = "";
    for (let i = 0; i < all.length; i += 4) text += String.fromCharCode(all[i], all[i + 1], all[i + 2]);
    [asked, elsewhere] = [++turn, false];
    error.textContent = "";
    status.textContent = "Looking …";
    emit({pixels: btoa(text), turn});
  }

  /** The weights of a model, and for each which share of its row the larger ones hold together. */
  function read(packed) {
    const {shape: [, H, N], values} = unpack(packed);
    const before = new Float64Array(values.length);
    for (let start = 0; start < values.length; start += N) {
      const row = values.subarray(start, start + N);
      const total = row.reduce((sum, x) => sum + x, 0);
      let so_far = 0;
      for (const p of Array.from(row.keys()).sort((a, b) => row[b] - row[a])) { // of equal ones the first stays the first
        before[start + p] = so_far;
        so_far += row[p] / total;
      }
    }
    const part = (array, i, k) => array.subarray((i * H + k) * N, (i * H + k + 1) * N);
    return {H, N, row: (i, k) => part(values, i, k), kept: (i, k) => Array.from(part(before, i, k), (x) => x < mass / 100 - SLACK)};
  }

  /** What row k of a model's weights is. */
  const named = (k) => !data.mean ? `head ${k}` : k ? `head ${k - 1}` : "mean of heads";

  /** Another model, with as many small pictures as it has heads. */
  function open(model) {
    m = model;
    const {H} = all[m];
    head = Math.min(head, H - 1);
    const buttons = Array.from({length: H}, () => h("button", {type: "button"},
      h("div", {class: "picture"}, h("canvas", {"aria-hidden": "true"}), h("svg", {"aria-hidden": "true", preserveAspectRatio: "none", viewBox: `0 0 ${width} ${height}`}))));
    buttons.forEach((button, k) => button.append(h("span", {}, named(k)), h("span", {class: "number"})));
    chosen.head = choices("Heads", buttons, (k) => { head = k; look(); }, "heads");
    chosen.head.group.style.setProperty("--side", `${H > 8 ? 66 : 84}px`);
    heads.replaceChildren(chosen.head.group);
    look();
  }

  /** Over how much of what it keeps and of the object both agree, in pixels. */
  function jaccard(i, k) {
    const size = height * width / all[m].N;
    let [both, either] = [0, 0];
    all[m].kept(i, k).forEach((kept, p) => {
      both += kept ? data.inside[i][p] : 0;
      either += kept ? size : data.inside[i][p];
    });
    return both / either;
  }

  /** The border of the kept patches as an SVG path, in pixels. */
  function border(kept) {
    const [wide, tall] = [width / columns, height / rows];
    const at = (r, c) => r >= 0 && c >= 0 && r < rows && c < columns && kept[r * columns + c];
    let path = "";
    for (let r = 0; r <= rows; r++) for (let c = 0; c <= columns; c++) {
      if (at(r, c) !== at(r - 1, c)) path += `M${c * wide} ${r * tall}h${wide}`;
      if (at(r, c) !== at(r, c - 1)) path += `M${c * wide} ${r * tall}v${tall}`;
    }
    return path;
  }

  const lines = (d, kind) => [h("path", {d, class: "behind"}), h("path", {d, class: kind})];

  function shade(onto, row) {
    const largest = Math.max(...row);
    paint(onto, [rows, columns], row, (x) => heatColour(x / largest));
  }

  /** Show what is chosen and say it. */
  function look() {
    const model = all[m];
    which.show(shown);
    chosen.model.show(m);
    chosen.head.show(head);
    share.show(mass);
    opacity.show(seen);
    image.src = plain.src = data.images[shown];
    shade(canvas, model.row(shown, head));
    canvas.style.opacity = seen / 100;
    picture.classList.toggle("heated", seen > 0);
    const outline = data.outlines?.[shown];
    drawing.replaceChildren(...(outline ? lines(outline, "outline") : []), ...lines(border(model.kept(shown, head)), "kept"));
    heads.querySelectorAll("button").forEach((button, k) => {
      shade(button.querySelector("canvas"), model.row(shown, k));
      button.querySelector("svg").replaceChildren(h("path", {d: border(model.kept(shown, k)), class: "kept"}));
      button.querySelector(".number").textContent = data.inside?.[shown] ? num(jaccard(shown, k), 3) : "";
      button.setAttribute("aria-label", `${named(k)}${data.inside?.[shown] ? `, Jaccard ${num(jaccard(shown, k), 3)}` : ""}`);
    });
    legend.replaceChildren("weight ", ...scaleOf("0", num(Math.max(...model.row(shown, head)), 4), (x) => viridis(Math.sqrt(x))),
      ` (colour: its square root). Orange line: kept patches${outline ? "; white line: the object" : ""}`);
    if (asked) return; // the line below says so
    const count = model.kept(shown, head).filter(Boolean).length;
    const name = [data.names[m], n > 1 ? (isOwn(shown) ? "your picture" : `image ${shown}`) : "", named(head)].filter(Boolean).join(", ");
    status.textContent = `${name[0].toUpperCase()}${name.slice(1)}: ${mass} % of the weight lies on ${count} of ${model.N} patches${data.inside?.[shown] ? compared() : ""}.`;
  }

  function compared() {
    const each = data.inside.flatMap((inside, i) => (inside ? [jaccard(i, head)] : []));
    const mean = each.length > 1 ? ` (mean over all ${each.length} images ${num(each.reduce((a, b) => a + b) / each.length, 3)})` : "";
    return `; Jaccard index with the object ${num(jaccard(shown, head), 3)}${mean}`;
  }

  update(data);
  return {update};
}
