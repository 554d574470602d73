// One cycle: what it saw, what it did and why, and what would have changed it.

import { get } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { card, cli, code, facts, heading, pill, stat, table, told, when } from "../parts.js";
import { linkTo } from "../router.js";

export default function decision({ id }) {
  return {
    title: `Cycle ${f.count(Number(id))}`,
    load: (signal) => get(`/decisions/${id}`, signal),
    view,
  };
}

function view(seen) {
  return [
    heading(`Cycle ${f.count(seen.cycle)}`, {
      note: [f.sentence(seen.summary), " ", when(seen.at)],
      back: { href: "#/decisions", text: "Decisions" },
    }),
    h(
      "div",
      { class: "stats", key: "stats" },
      stat("Queued", f.count(seen.queued), { note: "jobs that it saw" }),
      stat("Active workers", f.count(seen.active), { note: "that it saw" }),
      stat("Took", `${seen.took_ms} ms`, { note: `under epoch ${seen.epoch}` }),
    ),
    seen.note && h("p", { class: "held", key: "note" }, f.sentence(seen.note)),
    actionsCard(seen.actions),
    seen.shadow.length > 0 && shadowCard(seen.shadow),
    poolsCard(seen.pools),
    card(
      "Inputs",
      { test: "inputs", note: "all that was recorded of it" },
      code(seen.inputs, "Inputs of the cycle", "inputs-json"),
    ),
    card(
      "In a terminal",
      { test: "terminal", note: "what a cycle would do now" },
      cli("herdsman cycle --dry-run --explain"),
    ),
  ];
}

function actionsCard(actions) {
  const step = (each, index) =>
    h(
      "li",
      { key: index },
      h("span", { class: "small quiet" }, f.words(each.code).toLowerCase()),
      h(
        "div",
        {},
        h("p", {}, told(each.words), " ", each.done ? pill("done") : pill("not done", { tone: "warn" })),
        each.said && h("p", { class: "small quiet" }, told(each.said)),
        Object.keys(each.numbers).length > 0 && h("p", { class: "small quiet" }, numbers(each.numbers)),
      ),
    );
  return card(
    "What it did",
    { test: "actions" },
    actions.length
      ? h("ul", { class: "lines" }, actions.map(step))
      : h("p", { class: "quiet" }, "Nothing: there was nothing to do."),
  );
}

const SIDES = [
  { name: "Pool", cell: ({ pool }) => h("a", { href: linkTo("pools", pool) }, pool) },
  {
    name: "Policy",
    cell: ({ side, shadow }) => [side.policy, shadow && [" ", pill("shadow")]],
  },
  { name: "Workers", number: true, cell: ({ side }) => (side.workers === null ? "" : f.count(side.workers)) },
  { name: "What and why", main: true, cell: ({ side }) => told(f.sentence(side.reason)) },
];

function shadowCard(shadows) {
  const rows = shadows.flatMap((each) => [
    each.live && { pool: each.pool, side: each.live, shadow: false },
    each.shadow && { pool: each.pool, side: each.shadow, shadow: true },
    each.error && {
      pool: each.pool,
      side: { policy: each.policy, workers: null, reason: `it raised ${each.error}` },
      shadow: true,
    },
  ]).filter(Boolean);
  return card(
    "A second policy",
    { test: "shadow", note: "what it would have done; none of it was done" },
    table({
      caption: "The policy that decided, and the shadow",
      columns: SIDES,
      rows,
      key: (row) => `${row.pool} ${row.shadow}`,
    }),
  );
}

function numbers(given) {
  return Object.entries(given).map(([name, value]) =>
    `${f.words(name)} ${typeof value === "object" ? JSON.stringify(value) : value}`
  ).join(", ");
}

const POOLS = [
  { name: "Pool", cell: (row) => h("a", { href: linkTo("pools", row.pool) }, row.pool) },
  { name: "Queued", number: true, cell: (row) => f.count(row.queued) },
  {
    name: "Workers",
    cell: (row) =>
      Object.entries(row.workers).map(([state, many]) => `${many} ${state}`).join(", ") || "none",
  },
  {
    name: "What would have changed it",
    main: true,
    cell: (row) => row.would.map((each, index) => h("p", { key: index }, told(each))),
  },
];

function poolsCard(pools) {
  if (!pools.length) return card("Pools", {}, facts([["Seen", "no pool was recorded"]]));
  return card(
    "Pools",
    { test: "counterfactual", note: "as it saw them" },
    table({ caption: "Pools as the cycle saw them", columns: POOLS, rows: pools, key: (row) => row.pool }),
  );
}
