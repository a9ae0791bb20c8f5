// The way of the data through a model: a tree of calls, and what the chosen one gave.
// data: {title, stages: [{name, short, kind, depth, parameters, inputs: [text], outputs: [text],
//   numbers: [mean, std, low, high] or null, sample: pack (rows, columns)}]}

import {unpack, num, h, diverging, paint, root} from "./shared.js";

const STYLE = `
.ck p { color:var(--ink); font-size:16px; min-height:2.9em; }
.ck .sides { display:flex; gap:18px; flex-wrap:wrap; align-items:flex-start; }
.ck .tree { flex:1 1 350px; min-width:0; max-height:470px; overflow:auto; border:1px solid var(--line); border-radius:6px; padding:4px; position:relative; }
.ck .stage { display:flex; gap:0 8px; align-items:baseline; padding:3px 6px; border-radius:5px; cursor:pointer; white-space:nowrap; flex-wrap:wrap; }
.ck .stage[aria-selected=true] { background:var(--accent); color:var(--field); }
.ck .stage .fold { width:14px; flex:none; text-align:center; }
.ck .stage .short { font-weight:600; }
.ck .stage .kind { color:var(--soft); font-size:13px; }
.ck .stage .shape { margin-left:auto; padding-left:10px; font-variant-numeric:tabular-nums; font-size:13px; }
.ck .stage[aria-selected=true] .kind { color:inherit; }
.ck .about { flex:1 1 320px; min-width:0; font-size:15px; }
.ck .about .name { margin:0 0 4px; font-size:19px; font-weight:600; color:var(--ink); overflow-wrap:anywhere; }
.ck dl { display:grid; grid-template-columns:auto 1fr; gap:2px 12px; margin:0 0 8px; }
.ck dt { color:var(--soft); font-weight:400; }
.ck dd { margin:0; font-variant-numeric:tabular-nums; }
.ck .shapes { font-size:20px; margin:6px 0; overflow-wrap:anywhere; }
.ck .values canvas { width:100%; max-width:370px; height:var(--high); image-rendering:pixelated; display:block; }
.ck .caption { color:var(--soft); font-size:13px; min-height:2.9em; }
`;

export function mount(el, data) {
  const box = root(el, STYLE, "Model flow", data.title);
  const title = h("strong");
  const status = h("p", {"aria-live": "polite"});
  const before = h("button", {type: "button", onclick: () => step(-1)}, "◀ Previous");
  const after = h("button", {type: "button", onclick: () => step(1)}, "Next ▶");
  const open = h("button", {type: "button", onclick: () => { closed = new Set(); draw(); }}, "Open all");
  const close = h("button", {type: "button", onclick: () => { closed = new Set(stages.keys()); closed.delete(0); draw(); }}, "Close all");
  const tree = h("div", {class: "tree", role: "tree", "aria-label": "Modules in the order of their calls"});
  const about = h("div", {class: "about"});
  box.append(title, h("div", {class: "row"}, before, after, open, close), status, h("div", {class: "sides"}, tree, about));
  let stages, chosen = 0, closed;

  function update(fresh) {
    data = fresh;
    stages = data.stages;
    title.textContent = data.title;
    chosen = Math.min(chosen, stages.length - 1);
    closed = new Set(stages.length > 24 ? stages.keys() : []); // a large model opens with its first level alone
    closed.delete(0);
    draw();
  }

  const hasParts = (i) => stages[i + 1]?.depth > stages[i].depth;
  const parent = (i) => { let j = i - 1; while (j >= 0 && stages[j].depth >= stages[i].depth) j--; return j; };

  function visible() {
    const seen = [];
    let hidden = Infinity; // depth of the closed stage that we are inside of
    stages.forEach((stage, i) => {
      if (stage.depth > hidden) return;
      hidden = closed.has(i) && hasParts(i) ? stage.depth : Infinity;
      seen.push(i);
    });
    return seen;
  }

  function draw() {
    while (!visible().includes(chosen)) chosen = parent(chosen);
    tree.replaceChildren(...visible().map((i) => {
      const {short, kind, depth, outputs, name} = stages[i];
      return h("div", {class: "stage", role: "treeitem", "aria-level": depth + 1, "aria-selected": i === chosen, "aria-expanded": hasParts(i) ? !closed.has(i) : null,
        tabindex: i === chosen ? 0 : -1, style: `padding-left:${6 + 16 * depth}px`, title: name || kind, "data-stage": i, onclick: () => { chosen = i; draw(); tree.querySelector("[tabindex='0']").focus(); }},
        h("span", {class: "fold", "aria-hidden": "true", onclick: () => { if (hasParts(i)) toggle(i, closed.has(i)); }}, hasParts(i) ? (closed.has(i) ? "▸" : "▾") : ""),
        h("span", {class: "short"}, short), short === kind ? null : h("span", {class: "kind"}, kind), h("span", {class: "shape"}, outputs.join(", ") || "–"));
    }));
    show();
  }

  function toggle(i, on) {
    if (on) closed.delete(i); else closed.add(i);
  }

  function step(by) {
    const seen = visible();
    const next = seen[seen.indexOf(chosen) + by];
    if (next !== undefined) { chosen = next; draw(); }
  }

  const short = (value) => { const text = Math.abs(value) >= 1e4 ? value.toExponential(2) : Number(value.toPrecision(3)).toString(); return text.replace("-", "−"); };

  function show() {
    const stage = stages[chosen];
    const seen = visible();
    before.disabled = chosen === seen[0];
    after.disabled = chosen === seen.at(-1);
    const inside = tree.querySelector("[aria-selected=true]");
    if (inside.offsetTop < tree.scrollTop || inside.offsetTop + inside.offsetHeight > tree.scrollTop + tree.clientHeight)
      tree.scrollTop = inside.offsetTop - tree.clientHeight / 2; // the page itself does not move
    const took = stage.inputs.join(", ") || "–";
    const gave = stage.outputs.join(", ") || "–";
    status.textContent = `${stage.name ? `${stage.name}, ` : ""}${stage.kind}: takes ${took}, gives ${gave}`
      + (stage.numbers ? `, numbers from ${short(stage.numbers[2])} to ${short(stage.numbers[3])}.` : ", no numbers.");
    const facts = [["parameters", stage.parameters.toLocaleString("en-US")]];
    if (stage.numbers) facts.push(...["mean", "std", "min", "max"].map((name, k) => [name, short(stage.numbers[k])]));
    about.replaceChildren(h("div", {class: "name"}, stage.name || stage.kind), h("div", {class: "shapes"}, `${took} → ${gave}`),
      h("dl", {}, ...facts.flatMap(([name, fact]) => [h("dt", {}, name), h("dd", {}, fact)])), stage.numbers ? picture(stage) : "");
  }

  function picture(stage) {
    const {shape: [rows, columns], values} = unpack(stage.sample);
    const most = Math.max(...values.map(Math.abs)) || 1;
    const canvas = h("canvas", {role: "img", "aria-label": `${rows} by ${columns} of the values, blue below zero, orange above`});
    paint(canvas, [rows, columns], values, (value) => diverging(value / most).rgb);
    const usual = `First of the batch, ${rows} × ${columns} of its values: −${short(most)} blue, 0 white, ${short(most)} orange.`;
    const caption = h("div", {class: "caption"}, usual);
    canvas.addEventListener("pointermove", (event) => {
      const {left, top, width, height} = canvas.getBoundingClientRect();
      const [r, c] = [Math.floor((event.clientY - top) / height * rows), Math.floor((event.clientX - left) / width * columns)];
      if (r >= 0 && r < rows && c >= 0 && c < columns) caption.textContent = `row ${r}, column ${c} of what is shown: ${num(values[r * columns + c], 4)}`;
    });
    canvas.addEventListener("pointerleave", () => { caption.textContent = usual; });
    return h("div", {class: "values", style: `--high:${Math.max(24, Math.min(190, rows * 16))}px`}, canvas, caption);
  }

  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const seen = visible();
    const go = {
      ArrowUp: () => step(-1), ArrowDown: () => step(1),
      Home: () => { chosen = seen[0]; draw(); }, End: () => { chosen = seen.at(-1); draw(); },
      ArrowRight: () => { if (hasParts(chosen) && closed.has(chosen)) { toggle(chosen, true); draw(); } else if (hasParts(chosen)) step(1); },
      ArrowLeft: () => { if (hasParts(chosen) && !closed.has(chosen)) toggle(chosen, false); else chosen = Math.max(0, parent(chosen)); draw(); },
    }[event.key];
    if (!go) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    const inTree = tree.contains(event.target); // its items are drawn anew
    go();
    if (inTree) tree.querySelector("[tabindex='0']").focus({preventScroll: true});
  });
  update(data);
  return {update};
}
