// One key is enough to give the lecture: it goes down a slide that is taller than the screen, then on to what comes next.
const LAP = 80; // pixels that stay in sight when a slide scrolls
const LEFT = 10; // what is less below the edge is a margin

const current = () => Reveal.getCurrentSlide();
const fragments = (how) => [...current().querySelectorAll(`.fragment${how}`)];

function forward() {
  const slide = current();
  // what is hidden yet has its place already: the slide ends where it begins
  const end = fragments(":not(.visible)")[0]?.offsetTop ?? slide.scrollHeight;
  const bottom = slide.scrollTop + slide.clientHeight;
  if (bottom + LEFT >= end) return Reveal.next();
  slide.scrollTop = Math.min(bottom - LAP, end - slide.clientHeight);
}

function back() {
  const slide = current();
  const start = fragments(".visible").at(-1)?.offsetTop ?? 0;
  if (slide.scrollTop > start + LEFT) {
    slide.scrollTop = Math.max(start, slide.scrollTop - slide.clientHeight + LAP);
    return;
  }
  Reveal.prev();
  if (current() !== slide) current().scrollTop = current().scrollHeight;
}

// key codes of Space, N, PageDown, Right and Down; P, PageUp, Left and Up; what they do while all slides are shown
const KEYS = {
  32: [forward, "toggleOverview"], 78: [forward, "next"], 34: [forward, "next"], 39: [forward, "right"], 40: [forward, "down"],
  80: [back, "prev"], 33: [back, "prev"], 37: [back, "left"], 38: [back, "up"],
};
const keyboard = {};
for (const [code, [step, inOverview]] of Object.entries(KEYS)) {
  keyboard[code] = (event) => {
    if (Reveal.isOverview()) Reveal[inOverview]();
    else if (code === "32" && event.shiftKey) back();
    else step();
  };
}

Reveal.initialize({hash: true, center: false, slideNumber: "c/t", width: 1280, height: 720, margin: 0.03,
  transition: "none", navigationMode: "linear", keyboard, plugins: [RevealNotes]});
Reveal.on("slidechanged", ({currentSlide}) => {
  currentSlide.scrollTop = 0;
  follow();
});
Reveal.on("fragmentshown", ({fragment}) => { // all of it in sight, or its beginning
  const slide = current();
  const end = fragment.offsetTop + fragment.offsetHeight - slide.clientHeight;
  slide.scrollTop = Math.max(slide.scrollTop, Math.min(fragment.offsetTop, end));
});
Reveal.on("fragmenthidden", ({fragment}) => { // the end of what is left
  const slide = current();
  slide.scrollTop = Math.min(slide.scrollTop, fragment.offsetTop - slide.clientHeight);
});

// In the speaker's view keys go to a copy of the slides: what scrolls in it scrolls before the audience.
const speakers = location.search.includes("postMessageEvents");
let scrolled = null; // by the speaker, on which slide, to where

const place = () => { const {h, v} = Reveal.getIndices(); return `${h}/${v ?? 0}`; };

function follow() {
  if (scrolled?.slide !== place()) return;
  current().scrollTop = scrolled.top;
  scrolled = null;
}

if (speakers) {
  document.addEventListener("scroll", ({target}) => {
    if (target === current()) parent.opener?.postMessage({scrolled: {slide: place(), top: target.scrollTop}}, "*");
  }, true);
} else {
  addEventListener("message", ({data}) => {
    if (!data?.scrolled) return;
    scrolled = data.scrolled; // it may come before the slide that it is about
    follow();
  });
}

// The arrows on the screen do as the keys do (reveal switches them off on the last slide).
for (const pressed of ["touchstart", "click"]) {
  document.querySelector(".reveal").addEventListener(pressed, (event) => {
    const arrow = event.target.closest(".controls button");
    if (!arrow || Reveal.isOverview()) return;
    event.stopPropagation();
    event.preventDefault(); // a touch is no click besides
    if (arrow.matches(".navigate-left, .navigate-up")) back();
    else forward();
  }, {capture: true, passive: false});
}
