// One pool: why it has the workers that it has, and what would add one.

import { get, part, post, query } from "../api.js";
import * as commands from "../commands.js";
import { ask, notice } from "../dialog.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { button, card, cli, code, facts, heading, idLink, pill, table, told, when } from "../parts.js";
import { link } from "../router.js";
import { can } from "../session.js";

export default function pool({ id, reload }) {
  return {
    title: `Pool ${id}`,
    every: 5000,
    wants: () => true,
    load: async (signal) => {
      const [why, listed, fleet] = await Promise.all([
        get(`/why/pool/${part(id)}`, signal),
        get(query("/workers/pool", { limit: 200 }), signal),
        get("/fleet", signal),
      ]);
      const named = listed.pools.find((each) => each.pool_id === id) ?? null;
      return { why, named, workers: fleet.workers.filter((each) => each.pool === id) };
    },
    view: (seen) => view(id, seen, reload),
  };
}

function view(id, { why, named, workers }, reload) {
  return [
    heading(`Pool ${id}`, {
      pill: named && pill(named.status),
      note: why.status,
      actions: named && can("pools") && ["starting", "running"].includes(named.status) &&
        drainButton(id, reload),
      back: { href: "#/pools", text: "Pools and leases" },
    }),
    h(
      "div",
      { class: "grid split", key: "grid" },
      h("div", { class: "stack" }, whyCard(why), workersCard(workers)),
      h(
        "div",
        { class: "stack" },
        nextCard(why.next_worker),
        named && factsCard(named),
        terminalCard(id, named),
      ),
    ),
  ];
}

function drainButton(id, reload) {
  const act = async () => {
    await post(`/workers/pool/${part(id)}/drain`);
    notice("The pool is drained");
    reload();
  };
  const question = {
    title: `Let the pool ${id} go?`,
    text:
      "It gets no new jobs, and its workers leave when they have finished what they hold. Jobs that wait for it stay.",
    command: () => commands.drainPool(id),
    action: "Drain",
    danger: true,
    act,
  };
  return button("Drain", () => void ask(question), { kind: "danger", test: "drain-pool" });
}

function whyCard(why) {
  const step = (each, index) =>
    h(
      "li",
      { key: index },
      when(each.last),
      h(
        "span",
        {},
        told(each.reason),
        each.times > 1 && ` (${each.times} times)`,
        " ",
        h("span", { class: "small quiet" }, f.words(each.code)),
      ),
    );
  return card(
    "Why",
    { test: "why" },
    h("ul", { class: "reasons" }, why.because.map((each, index) => h("li", { key: index }, told(each)))),
    why.decided.length > 0 && h("ul", { class: "lines" }, why.decided.map(step)),
  );
}

function nextCard(next) {
  if (!next) return null;
  return card(
    "The next worker",
    { test: "next-worker" },
    facts([
      ["Queued now", f.count(next.queued)],
      ["Comes at", next.at_queued === null ? "no length of the queue" : `${f.count(next.at_queued)} queued`],
      ["Blocked by", next.blocked_by?.replace(/^blocked by /, "") ?? "nothing"],
    ]),
  );
}

const WORKERS = [
  { name: "Worker", cell: (row) => idLink("workers", row.worker_id) },
  { name: "State", cell: (row) => pill(row.status) },
  {
    name: "Job",
    cell: (
      row,
    ) => (row.jobs.length
      ? row.jobs.map((each) => idLink("jobs", each.job_id))
      : h("span", { class: "quiet" }, "idle")),
  },
  { name: "Age", number: true, cell: (row) => when(row.created_at, "since") },
];

function workersCard(workers) {
  return card(
    "Its workers",
    { test: "pool-workers" },
    workers.length
      ? table({
        caption: "Workers of the pool",
        columns: WORKERS,
        rows: workers,
        key: (row) => row.worker_id,
      })
      : h("p", { class: "quiet" }, "No worker of it lives now."),
  );
}

function factsCard(named) {
  return card(
    "Asked for",
    { test: "facts" },
    facts([
      ["Agent", named.agent_name],
      ["Model", named.model_id],
      ["Adapter", named.adapter],
      ["Variant", named.variant],
      [
        "Workers",
        `${named.desired_workers} wanted, ${named.min_workers} to ${
          named.max_workers ?? named.desired_workers
        }`,
      ],
      ["Held", f.duration(named.hold_seconds)],
      ["Used", when(named.used_at)],
      ["Trouble", named.troubles.join("; ")],
    ]),
    h("details", {}, h("summary", {}, "All of it"), code(named, "The pool")),
  );
}

function terminalCard(id, named) {
  return card(
    "In a terminal",
    { test: "terminal", actions: h("a", { class: "small", href: link("jobs", { pool: id }) }, "Its jobs") },
    cli(`herdsman why pool ${commands.quoted(id)}`, "Why it is so"),
    named && cli(`herdsman pool show ${commands.quoted(id)}`, "What was asked for"),
  );
}
