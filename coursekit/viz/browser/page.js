// The third back-end of a widget: on the site, what it asks is answered by a model in this browser, in a worker that all
// widgets of a page share. A widget that names no model, and a browser that cannot run one, keep their stored answers.

let worker = null, count = 0;
const views = new Map();

const able = globalThis.Worker && globalThis.WebAssembly && globalThis.CompressionStream && globalThis.DecompressionStream;

function ask(question) {
  if (!worker) {
    worker = new Worker(new URL("worker.js", import.meta.url), {type: "module"});
    worker.onmessage = ({data: {view, data, failed}}) => (failed ? views.get(view)?.fail(failed) : views.get(view)?.show(data));
    worker.onerror = (event) => {
      event.preventDefault();
      for (const view of views.values()) view.fail(event.message ?? "its worker did not start");
    };
  }
  worker.postMessage(question);
}

// @ts-ignore: the one name by which the scripts of the widgets find it
globalThis.courseModels = (mount, el, data) => {
  if (!able || !data.browser) return mount(el, data, {emit() {}});
  const id = count++;
  let told = false;
  const note = document.createElement("p"); // outside the widget, which may draw itself anew at any time
  const say = (role, text) => {
    note.setAttribute("role", role);
    note.textContent = text;
    el[role === "alert" ? "before" : "after"](note); // where one has just typed, the field is gone
  };
  const view = mount(el, {...data, live: true}, {emit: (message) => {
    if (!told) say("status", "The model is being loaded into this browser …");
    ask(told ? {view: id, message} : {view: id, data, message});
    told = true;
  }});
  views.set(id, {
    show(fresh) {
      note.remove();
      view.update({...fresh, live: true});
    },
    fail(reason) {
      views.delete(id);
      const here = el.contains(/** @type {Document} */ (el.getRootNode()).activeElement);
      mount(el, data, {emit() {}});
      say("alert", "The model could not be loaded into this browser, so only the stored answers are here. ");
      note.title = reason;
      const again = document.createElement("button");
      Object.assign(again, {type: "button", textContent: "Try again", onclick: () => {
        note.remove();
        globalThis.courseModels(mount, el, data);
        el.tabIndex = -1; // the button is gone, and the next key goes on from here
        el.focus({preventScroll: true});
      }});
      note.append(again);
      if (here) again.focus(); // where one typed a field may be gone, and what happened is said above
    },
  });
  return view;
};
