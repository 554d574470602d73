// One page at a time: loads it, draws it, and draws it again when something has happened.

import { h, patch } from "./dom.js";
import { heading, trouble } from "./parts.js";

const SOON = 1000; // at most one refresh in this time, however much happens
const PATIENT = 150; // only who waits longer sees that something is loaded
const SHARE = 1; // a load that takes long is repeated less often

// A page is {title, load(signal), view(data), wants(event), every, stop}; all but `title` and `view` may be missing.
// With `quiet`, what is there stays until the new page has come.
export function screen(place, make, onTitle, quiet) {
  const state = { data: undefined, problem: null, ended: false, dirty: false };
  let control = null;
  let timer = null;
  let took = 0;

  const page = make({ redraw: draw, reload });
  const waiting = quiet ? null : setTimeout(draw, PATIENT);

  function draw() {
    if (state.ended) return;
    if (state.data === undefined) {
      if (state.problem) onTitle(page.title);
      return patch(place, [heading(page.title), state.problem ? trouble(state.problem, reload) : loading()]);
    }
    const shown = page.view(state.data);
    patch(place, [state.problem && trouble(state.problem, reload), shown]);
    onTitle(page.title);
  }

  async function reload() {
    control?.abort();
    const mine = (control = new AbortController());
    clearTimeout(timer);
    timer = null;
    state.dirty = false;
    const began = performance.now();
    try {
      const data = page.load ? await page.load(mine.signal) : null;
      if (mine.signal.aborted) return;
      Object.assign(state, { data, problem: null });
    } catch (problem) {
      if (mine.signal.aborted || state.ended) return;
      state.problem = problem;
    }
    took = performance.now() - began;
    control = null;
    clearTimeout(waiting);
    draw();
    plan();
  }

  // The next look by the clock; events may come before it.
  function plan() {
    const every = state.problem
      ? 5000
      : typeof page.every === "function"
      ? page.every(state.data)
      : page.every;
    if (state.dirty) later(SOON);
    else if (every) later(every);
  }

  function later(length) {
    if (state.ended || document.hidden) return;
    clearTimeout(timer);
    timer = setTimeout(reload, Math.max(length, SHARE * took));
  }

  return {
    start: reload,
    happened(event) {
      if (state.ended || state.dirty || !page.wants?.(event)) return;
      state.dirty = true;
      if (control === null) later(SOON);
    },
    hide() {
      clearTimeout(timer);
    },
    stop() {
      state.ended = true;
      control?.abort();
      clearTimeout(timer);
      clearTimeout(waiting);
      page.stop?.();
    },
  };
}

function loading() {
  return h("p", { class: "loading", role: "status", key: "loading" }, "Loading…");
}
