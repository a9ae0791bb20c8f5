// Step through a decoding and see where each output looked.
// data: {title, source: [token], target: [token], weights: pack (T, S), step, live, typed, error}

const STYLE = `
.ck .scroll { overflow-x:auto; margin-top:10px; position:relative; }
.ck table { border-collapse:separate; border-spacing:1px; font-size:12px; }
.ck table caption { text-align:left; color:var(--soft); padding-bottom:2px; white-space:nowrap; }
.ck th { font-weight:500; padding:1px 4px; min-width:24px; text-align:center; color:var(--ink); }
.ck tbody tr { cursor:pointer; background:none !important; } /* notebooks stripe their tables */
.ck td { min-width:27px; height:22px; padding:0 2px; text-align:center; font-variant-numeric:tabular-nums; }
.ck td span.small { position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%); }
.ck tr[aria-current] th { color:var(--accent); font-weight:700; }
.ck tr[aria-current] { outline:2px solid var(--accent); }
.ck .weight { font-variant-numeric:tabular-nums; }
.ck .error { color:var(--accent2); }
`;

export function mount(el, data, {emit}) {
  const box = root(el, STYLE, "Attention alignment");
  const title = h("strong");
  const typed = data.live ? field() : null; // outside what updates replace, so that it keeps text and focus
  const error = h("p", {class: "error", role: "alert"});
  const body = h("div");
  box.append(...[title, typed, error, body].filter(Boolean));
  let timer = null;
  let state;

  function field() {
    const send = () => emit({source: input.value});
    const input = h("input", {type: "text", "aria-label": "Source", value: data.typed ?? data.source.join(" "),
      // no form: in JupyterLab, Enter does not submit one
      onkeydown: (e) => { if (e.key === "Enter") { e.preventDefault(); send(); } }});
    return h("div", {class: "row"}, h("label", {}, "Source: ", input), h("button", {type: "button", onclick: send}, "Decode"));
  }

  function start(fresh) {
    data = fresh;
    const {shape: [T, S], values} = unpack(data.weights);
    state = {T, S, row: (t) => values.subarray(t * S, (t + 1) * S), step: Math.min(data.step ?? 0, T - 1)};
    stop();
    build();
    show(state.step);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
  }

  function build() {
    const button = (label, text, action) =>
      h("button", {type: "button", "aria-label": label, title: label, onclick: () => { stop(); action(); }}, text);
    state.status = h("p", {"aria-live": "polite"});
    state.picture = h("div");
    state.slider = h("input", {type: "range", min: 1, max: state.T, step: 1, "aria-label": "Output step",
      style: "flex:1 1 120px", oninput: (e) => { stop(); show(e.target.value - 1); }});
    state.play = h("button", {type: "button", onclick: play});
    const controls = h("div", {class: "row"},
      button("First step", "⏮", () => show(0)), button("Previous step", "◀", () => show(state.step - 1)), state.slider,
      button("Next step", "▶", () => show(state.step + 1)), button("Last step", "⏭", () => show(state.T - 1)), state.play);
    title.textContent = data.title;
    error.textContent = data.error ?? "";
    body.replaceChildren(state.status, controls, state.picture, table());
  }

  function table() {
    const wide = state.S > 14;
    const head = h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "output ↓ source →"),
      ...data.source.map((token) => h("th", {scope: "col"}, token))));
    state.rows = data.target.map((token, t) => h("tr", {onclick: () => { stop(); show(t); }},
      h("th", {scope: "row"}, `${t + 1}: ${token}`),
      ...Array.from(state.row(t), (weight, s) => {
        const {fill, ink} = viridis(weight);
        return h("td", {style: `background:${fill};color:${ink}`, title: `output ${t + 1} (${token}) → source ${s + 1} (${data.source[s]}): ${weight.toFixed(3)}`},
          h("span", {class: wide ? "small" : ""}, weight.toFixed(2)));
      })));
    return h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "All weights"},
      h("table", {}, h("caption", {}, "All weights, dark 0 to light 1. Choose a row to see it above."), head, h("tbody", {}, ...state.rows)));
  }

  function show(step) {
    const {T, S} = state;
    step = state.step = Math.max(0, Math.min(T - 1, Number(step)));
    const weights = Array.from(state.row(step));
    const peak = weights.indexOf(Math.max(...weights));
    state.slider.value = step + 1;
    state.slider.setAttribute("aria-valuetext", `step ${step + 1} of ${T}`);
    state.status.textContent = `Step ${step + 1} of ${T}: output ${data.target[step]} looks most at source position `
      + `${peak + 1} (${data.source[peak]}), weight ${weights[peak].toFixed(2)}.`;
    state.rows.forEach((row, t) => t === step ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current"));
    state.picture.replaceChildren(picture(step, weights));
    label();
  }

  function picture(step, weights) {
    const {T, S} = state;
    const [W, top, high, gap] = [760, 34, 92, 96];
    const at = (i, n) => 20 + (W - 40) * (i + 0.5) / n;
    const [sourceY, targetY] = [top + high + 20, top + high + 20 + gap];
    const size = Math.min(16, 300 / Math.max(S, T));
    const wide = Math.min(46, (W - 40) / S * 0.72);
    const svg = h("svg", {viewBox: `0 0 ${W} ${targetY + 26}`, "aria-hidden": "true"});
    const text = (x, y, value, more = {}) => h("text", {x, y, "text-anchor": "middle", "font-size": size, ...more}, value);
    svg.append(h("line", {x1: 20, x2: W - 20, y1: top + high, y2: top + high, stroke: "var(--line)"}));
    weights.forEach((weight, s) => {
      const tall = weight * high;
      const {fill} = viridis(weight);
      svg.append(h("rect", {x: at(s, S) - wide / 2, y: top + high - tall, width: wide, height: tall, fill,
        stroke: "var(--soft)", "stroke-width": weight > 0.004 ? 0.8 : 0}));
      svg.append(text(at(s, S), top + high - tall - 4, weight.toFixed(2), {class: "weight quiet", "font-size": Math.min(12, 240 / S)}));
      svg.append(h("line", {x1: at(step, T), y1: targetY - size, x2: at(s, S), y2: sourceY + 6, stroke: "var(--accent)",
        "stroke-width": (8 * weight).toFixed(2), "stroke-opacity": weight > 0.004 ? 0.25 + 0.6 * weight : 0, "stroke-linecap": "round"}));
      svg.append(text(at(s, S), sourceY, data.source[s], {"font-weight": weight >= 0.5 ? 700 : 400}));
    });
    data.target.forEach((token, t) => svg.append(text(at(t, T), targetY, t <= step ? token : "·",
      {"font-weight": t === step ? 700 : 400, class: t === step ? "" : "quiet"})));
    svg.append(text(20, targetY + 20, "outputs so far", {"text-anchor": "start", "font-size": 12, class: "quiet"}));
    svg.append(text(20, 12, "weight on each source position", {"text-anchor": "start", "font-size": 12, class: "quiet"}));
    return svg;
  }

  function label() {
    state.play.textContent = timer ? "❚❚ Pause" : "Play";
  }

  function play() {
    if (timer) { stop(); return label(); }
    if (state.step === state.T - 1) show(0);
    timer = setInterval(() => {
      if (!box.isConnected) return stop();
      if (state.step < state.T - 1) return show(state.step + 1);
      stop();
      label();
    }, 700);
    label();
  }

  box.addEventListener("keydown", (event) => {
    if (["text", "range"].includes(event.target.type)) return;
    const go = {ArrowLeft: state.step - 1, ArrowRight: state.step + 1, Home: 0, End: state.T - 1}[event.key];
    if (go === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own arrow keys
    stop();
    show(go);
  });
  start(data);
  return {update: start};
}
