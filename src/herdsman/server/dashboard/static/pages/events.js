// Everything that happens, as it happens.

import { query } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { follow } from "../live.js";
import { button, card, empty, heading, idLink, pill, table } from "../parts.js";
import { go, link } from "../router.js";

const KINDS = ["job", "worker", "pool", "lease", "hold", "policy", "stream"];
const BACK = 300; // so many events of the past are shown at first
const MOST = 500;
const PAINT = 250;
const SECTIONS = { job: "jobs", worker: "workers", pool: "pools" };

export default function events({ query: asked, redraw, lastEvent }) {
  const kind = asked.get("kind");
  const state = {
    found: [],
    text: asked.get("text") ?? "",
    paused: false,
    stream: null,
    timer: null,
    held: [],
  };

  function begin(wait) {
    state.timer = setTimeout(() => ((state.timer = null), open()), wait);
  }

  function open() {
    const last = lastEvent();
    if (last === null) return begin(200); // until the page's own stream knows where it is
    state.stream = follow({
      path: query("/events", { kind }),
      since: Math.max(0, last - BACK),
      onEvent: take,
      onState: () => {},
    });
  }

  function take(event) {
    (state.paused ? state.held : state.found).unshift(event);
    state.found.length = Math.min(state.found.length, MOST);
    state.held.length = Math.min(state.held.length, MOST);
    state.timer ??= setTimeout(() => ((state.timer = null), redraw()), PAINT);
  }

  function pause() {
    state.paused = !state.paused;
    if (!state.paused) state.found = [...state.held.splice(0), ...state.found].slice(0, MOST);
    redraw();
  }

  function search(event) {
    state.text = event.target.value;
    history.replaceState(null, "", link("events", { kind, text: state.text }));
    redraw();
  }

  begin(0);
  return {
    title: "Events",
    view: () => view(state, kind, { pause, search }),
    stop: () => (clearTimeout(state.timer), state.stream?.stop()),
  };
}

function view(state, kind, { pause, search }) {
  const wanted = state.text.trim().toLowerCase();
  const rows = state.found.filter((each) => !wanted || fits(each, wanted));
  return [
    heading("Events", {
      note: state.paused
        ? `Paused; ${f.plural(state.held.length, "event")} came since.`
        : "Newest first, as they happen.",
      actions: button(state.paused ? "Go on" : "Pause", pause, { test: "pause-events" }),
    }),
    h(
      "div",
      { class: "filters", role: "search", "aria-label": "Filter events", key: "filters" },
      h(
        "div",
        { class: "chips", role: "group", "aria-label": "Kind" },
        KINDS.map((each) => chip(each, kind, state.text)),
      ),
      h(
        "div",
        { class: "field" },
        h("label", { for: "filter-text" }, "Contains"),
        h("input", {
          id: "filter-text",
          value: state.text,
          oninput: search,
          "data-filter": true,
          placeholder: "an id, a state, a reason or a name; press / to come here",
          autocomplete: "off",
          "data-test": "filter-text",
        }),
      ),
    ),
    card(
      "Tail",
      {
        test: "events-card",
        note: `${f.plural(rows.length, "event")} of the last ${f.count(state.found.length)}`,
      },
      rows.length
        ? table({
          caption: "Events, newest first",
          columns: COLUMNS,
          rows,
          key: (row) => row.id,
          test: "events",
        })
        : empty(
          "No event yet",
          "Every step of jobs, workers, pools and leases appears here. The same in a terminal:",
          "herdsman events",
        ),
    ),
  ];
}

function chip(each, kind, text) {
  const on = each === kind;
  const next = link("events", { kind: on ? null : each, text });
  return h("button", {
    type: "button",
    class: "button chip",
    key: each,
    "aria-pressed": String(on),
    onclick: () => go(next),
    "data-test": `kind-${each}`,
  }, each);
}

function fits(event, wanted) {
  return [event.object_id, event.event, event.reason, event.actor].some((each) =>
    each.toLowerCase().includes(wanted)
  );
}

const COLUMNS = [
  {
    name: "Time",
    cell: (row) =>
      h("time", { datetime: row.ts, title: f.exact(Date.parse(row.ts)) }, f.clock(Date.parse(row.ts))),
  },
  { name: "Kind", cell: (row) => row.kind },
  {
    name: "What",
    cell: (
      row,
    ) => (SECTIONS[row.kind]
      ? idLink(SECTIONS[row.kind], row.object_id)
      : h("span", { class: "id", title: row.object_id }, f.shortId(row.object_id))),
  },
  { name: "State", cell: (row) => pill(row.to_status) },
  { name: "Before", minor: true, cell: (row) => (row.from_status ? f.words(row.from_status) : "–") },
  { name: "Why", cell: (row) => f.words(row.reason) },
  { name: "By", minor: true, cell: (row) => h("span", { title: row.actor }, f.actor(row.actor)) },
];
