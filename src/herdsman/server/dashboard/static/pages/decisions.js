// What the control loop decided, cycle by cycle.

import { get, query } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { card, empty, heading, more, pill, table, told, when } from "../parts.js";
import { link } from "../router.js";

export default function decisions({ query: asked }) {
  const wanted = {
    only: asked.get("only") === "shadow" ? "shadow" : asked.get("all") === "true" ? null : "acted",
    pool: asked.get("pool"),
    after: asked.get("after"),
  };
  return {
    title: "Decisions",
    every: wanted.after ? null : 5000,
    wants: (event) => !wanted.after && event.kind !== "job",
    load: (signal) => get(query("/decisions", { ...wanted, limit: 50 }), signal),
    view: (seen) => view(seen, wanted),
  };
}

const COLUMNS = [
  { name: "Cycle", cell: (row) => h("a", { href: `#/decisions/${row.cycle}` }, f.count(row.cycle)) },
  { name: "When", cell: (row) => when(row.at) },
  { name: "Queued", number: true, cell: (row) => f.count(row.queued) },
  { name: "Active", number: true, cell: (row) => f.count(row.active) },
  {
    name: "What and why",
    main: true,
    cell: (row) => [row.actions.length ? grouped(row.actions) : f.sentence(row.summary), differs(row.shadow)],
  },
  { name: "Took", number: true, cell: (row) => `${row.took_ms} ms` },
];

function grouped(actions) {
  const shown = actions.slice(0, 4);
  const line = (step, index) =>
    h("p", { key: index }, told(step.words), !step.done && [" ", pill("not done", { tone: "warn" })]);
  return [
    shown.map(line),
    actions.length > shown.length && h("p", { class: "quiet" }, `and ${actions.length - shown.length} more`),
  ];
}

function differs(shadows) {
  if (!shadows.length) return null;
  const failed = shadows.some((each) => each.error);
  return h(
    "p",
    { "data-test": "shadow-mark" },
    pill(failed ? "shadow failed" : "shadow differs", { tone: failed ? "warn" : "wait" }),
  );
}

const NOTES = {
  all: "Every cycle, newest first.",
  acted: "Cycles that did something, newest first.",
  shadow: "Cycles in which a second policy would have done something else, newest first.",
};

function view(seen, wanted) {
  const all = wanted.only === null;
  const apart = wanted.only === "shadow";
  const here = { all: all ? "true" : null, only: apart ? "shadow" : null, pool: wanted.pool };
  const turned = link("decisions", { pool: wanted.pool, all: all ? null : "true" });
  const shadow = link("decisions", { pool: wanted.pool, only: "shadow" });
  return [
    heading("Decisions", {
      note: NOTES[wanted.only ?? "all"],
      actions: [
        !apart && seen.cycles.some((row) => row.shadow.length) &&
        h("a", { class: "button", href: shadow, "data-test": "shadow-cycles" }, "Where the shadow differs"),
        h(
          "a",
          { class: "button", href: turned, "data-test": "all-cycles" },
          all ? "Only those that acted" : "Show all cycles",
        ),
      ],
    }),
    card(
      "Cycles",
      { test: "cycles-card" },
      seen.cycles.length
        ? table({
          caption: "Cycles of the control loop",
          columns: COLUMNS,
          rows: seen.cycles,
          key: (row) => row.cycle,
          test: "decisions",
        })
        : empty(
          "Nothing has been decided here",
          "Ask what a cycle would do, without doing it:",
          "herdsman cycle --dry-run --explain",
        ),
      more(seen.next, link("decisions", { ...here, after: seen.next }), {
        first: wanted.after && link("decisions", here),
      }),
    ),
  ];
}
