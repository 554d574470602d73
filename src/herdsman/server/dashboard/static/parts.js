// What all pages are made of.

import { h } from "./dom.js";
import * as f from "./format.js";
import { icon } from "./icons.js";
import { linkTo } from "./router.js";
import { NONE } from "./tables.js";

export { more, table } from "./tables.js";

const TONES = {
  scheduled: "wait",
  pending: "wait",
  claimed: "run",
  running: "run",
  done: "good",
  failed: "warn",
  dead_letter: "bad",
  cancelled: "dim",
  spawning: "wait",
  starting: "wait",
  active: "good",
  terminating: "warn",
  draining: "warn",
  error: "bad",
  terminated: "dim",
  stopped: "dim",
  evicted: "bad",
  released: "dim",
  expired: "warn",
  revoked: "bad",
  interrupted: "warn",
  lost: "bad",
  queue: "wait",
  boot: "warn",
  run: "run",
  result: "good",
  backoff: "bad",
};
const SIGNS = { good: "●", run: "▶", wait: "○", warn: "▲", bad: "■", dim: "–" };

// Colour, sign and word: no one of them alone.
export function pill(status, { text, tone } = {}) {
  const kind = tone ?? TONES[status] ?? "dim";
  return h(
    "span",
    { class: `pill ${kind}`, "data-status": status },
    h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[kind]),
    text ?? f.words(status),
  );
}

export const tone = (status) => TONES[status] ?? "dim";

const RELATIVE = { ago: f.ago, since: f.since };

// A relative time, kept up to date by `tick`; the exact instant is its title.
export function when(text, kind = "ago") {
  const at = f.instant(text);
  if (at === null) return h("span", { class: "quiet" }, NONE);
  return h("time", { datetime: text, title: f.exact(at), "data-rel": kind }, RELATIVE[kind](at));
}

export function tick() {
  for (const each of document.querySelectorAll("time[data-rel]")) {
    const said = RELATIVE[each.dataset.rel](Date.parse(each.dateTime));
    if (each.firstChild && each.firstChild.data !== said) each.firstChild.data = said;
  }
}

export function idLink(section, id) {
  if (!id) return h("span", { class: "quiet" }, NONE);
  return h("a", { class: "id", href: linkTo(section, id), title: id }, f.shortId(id));
}

const KNOWN = /((?<![\w-])gpu-\d+-[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{32}\b)/;

// A sentence in which workers and jobs are links with short names.
export function told(text) {
  return f
    .sentence(text)
    .split(KNOWN)
    .map((
      piece,
      index,
    ) => (index % 2 ? idLink(piece.startsWith("gpu-") ? "workers" : "jobs", piece) : piece));
}

export function heading(title, { pill: state, note, actions, test, back } = {}) {
  return h(
    "div",
    { class: "heading" },
    back && h("a", { class: "back", href: back.href }, icon("back"), back.text),
    h(
      "div",
      { class: "row" },
      h("h1", { id: "title", tabindex: "-1", "data-test": test ?? "title" }, title),
      state,
      actions && h("div", { class: "actions" }, actions),
    ),
    note && h("p", { class: "quiet" }, note),
  );
}

export function card(title, props, ...children) {
  const { test, note, actions, key, wide } = props ?? {};
  const id = `card-${title.toLowerCase().replaceAll(/\W+/g, "-")}`;
  return h(
    "section",
    { class: wide ? "card wide" : "card", "aria-labelledby": id, "data-test": test, key: key ?? id },
    h(
      "div",
      { class: "cardhead" },
      h("h2", { id }, title),
      note && h("p", { class: "quiet" }, note),
      actions && h("div", { class: "actions" }, actions),
    ),
    ...children,
  );
}

export function stat(label, value, { note, href, test, tone: kind } = {}) {
  const inside = [
    h("span", { class: "label" }, label),
    h("span", { class: kind ? `figure ${kind}` : "figure", "data-test": test }, value),
    h("span", { class: "note" }, note),
  ];
  return href
    ? h("a", { class: "stat", href, key: label }, inside)
    : h("div", { class: "stat", key: label }, inside);
}

export function empty(title, text, command, test = "empty") {
  return h(
    "div",
    { class: "empty", "data-test": test },
    h("p", { class: "strong" }, title),
    text && h("p", {}, text),
    command && cli(command),
  );
}

export function trouble(problem, retry) {
  return h(
    "div",
    { class: "trouble", role: "alert", "data-test": "trouble", key: "trouble" },
    h("p", {}, f.sentence(problem.message)),
    retry && button("Try again", retry, { test: "retry-load" }),
  );
}

export function button(text, onclick, { kind = "", test, disabled, label, before } = {}) {
  const props = {
    type: "button",
    class: `button ${kind}`,
    onclick,
    disabled,
    "aria-label": label,
    "data-test": test,
  };
  return h("button", props, before, text);
}

export function cli(line, label = "In a terminal") {
  return h(
    "div",
    { class: "cli", key: `cli-${label}` },
    h("code", { tabindex: "0", "aria-label": label, "data-test": "cli" }, line),
    copier(line),
  );
}

export function copier(text, label = "Copy") {
  return h(
    "button",
    {
      type: "button",
      class: "copy",
      "aria-label": label,
      title: label,
      onclick: (event) => copy(text, event),
    },
    icon("copy"),
  );
}

async function copy(text, event) {
  const pressed = event.currentTarget;
  await (navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard"))).catch(() =>
    byHand(text)
  );
  pressed.classList.add("copied");
  say("Copied");
  setTimeout(() => pressed.classList.remove("copied"), 1500);
}

// Where the clipboard is closed to us, as over plain HTTP.
function byHand(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// For those who hear the page.
export function say(text) {
  document.getElementById("said").textContent = text;
}

export function bar(part, label, { text, kind = "", test } = {}) {
  const share = Math.max(0, Math.min(1, part));
  const props = {
    class: `bar ${kind}`,
    role: "meter",
    "aria-label": label,
    "aria-valuemin": "0",
    "aria-valuemax": "100",
    "aria-valuenow": String(Math.round(share * 100)),
    "aria-valuetext": text ?? f.percent(share),
    "data-test": test,
  };
  return h("div", props, h("div", { class: "fill", style: { width: `${share * 100}%` } }));
}

const HELD = ["claimed", "running"];

export function progress(job, test = "progress") {
  if (!HELD.includes(job.status) || job.progress === null) return h("span", { class: "quiet" }, NONE);
  return h(
    "div",
    { class: "progress" },
    bar(job.progress, "Progress", { kind: "run", test }),
    h("span", { class: "small", "data-test": `${test}-text` }, f.percent(job.progress)),
  );
}

export function gpuBar(gpu) {
  const share = gpu.total_mb ? gpu.used_mb / gpu.total_mb : 0;
  const text = `${f.memory(gpu.used_mb)} of ${f.memory(gpu.total_mb)}`;
  const busy = gpu.busy_pct ?? gpu.utilisation;
  const name = `GPU ${gpu.index ?? gpu.gpu_index ?? ""}`.trim();
  return h(
    "div",
    { class: "gpu", key: gpu.uuid, title: gpu.uuid },
    h("span", { class: "small" }, name),
    bar(share, `${name}, memory used`, { text, kind: share > 0.9 ? "warn" : "" }),
    h(
      "span",
      { class: "small quiet" },
      text,
      busy === null || busy === undefined ? "" : `, ${Math.round(busy)} % busy`,
    ),
  );
}

export function code(value, label, test) {
  const props = { class: "code", tabindex: "0", role: "group", "aria-label": label, "data-test": test };
  return h("pre", props, f.json(value));
}

export function facts(pairs, test) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts", "data-test": test },
    shown.map(([name, value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, value))),
  );
}
