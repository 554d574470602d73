// Every worker that lives, with what it holds.

import { get, query } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { card, empty, gpuBar, heading, idLink, more, pill, progress, table, when } from "../parts.js";
import { link, linkTo } from "../router.js";

export default function workers({ query: asked }) {
  const after = asked.get("after");
  return {
    title: "Workers",
    every: 3000,
    wants: (event) => event.kind === "worker" || event.kind === "job",
    load: async (signal) => {
      const [fleet, all] = await Promise.all([
        get("/fleet", signal),
        get(query("/workers", { after, limit: 20 }), signal),
      ]);
      return { fleet, all };
    },
    view: (seen) => view(seen, after),
  };
}

const LIVING = [
  { name: "Worker", cell: (row) => idLink("workers", row.worker_id) },
  {
    name: "State",
    cell: (row) => [pill(row.status), " ", h("span", { class: "small quiet" }, f.words(row.reason))],
  },
  { name: "Pool", cell: (row) => h("a", { href: linkTo("pools", row.pool) }, row.pool) },
  {
    name: "Job",
    cell: (row) => (row.jobs.length ? row.jobs.map(held) : h("span", { class: "quiet" }, "idle")),
  },
  {
    name: "GPU",
    cell: (row) => (row.gpus.length ? row.gpus.map(gpuBar) : h("span", { class: "quiet" }, "none told")),
  },
  { name: "Heartbeat", number: true, cell: (row) => when(row.last_heartbeat) },
  { name: "Age", number: true, cell: (row) => when(row.created_at, "since") },
  { name: "Per hour", number: true, cell: (row) => f.money(row.cost_per_hour) },
];

function held(job) {
  return h(
    "div",
    { key: job.job_id },
    idLink("jobs", job.job_id),
    " ",
    h("span", { class: "small quiet" }, job.type),
    progress(job, "worker-progress"),
  );
}

const ALL = [
  { name: "Worker", cell: (row) => idLink("workers", row.worker_id) },
  { name: "State", cell: (row) => pill(row.status) },
  { name: "Pool", cell: (row) => row.pool },
  { name: "Why", main: true, cell: (row) => row.error ?? f.words(row.reason) },
  { name: "Machine", minor: true, cell: (row) => row.instance_type ?? "–" },
  { name: "Made", number: true, cell: (row) => when(row.created_at) },
  { name: "In this state", number: true, cell: (row) => when(row.entered_status_at, "since") },
];

function view({ fleet, all }, after) {
  const key = (row) => row.worker_id;
  return [
    heading("Workers", { note: summary(fleet) }),
    card(
      "Living",
      { test: "living" },
      fleet.workers.length
        ? table({ caption: "Workers that live", columns: LIVING, rows: fleet.workers, key, test: "workers" })
        : empty(
          "No worker lives",
          "The control loop starts some when jobs wait. To add one by hand:",
          "herdsman worker --module jobs",
        ),
    ),
    card(
      "All, newest first",
      { note: "those that are gone, too", test: "all-workers" },
      all.workers.length
        ? table({ caption: "All workers", columns: ALL, rows: all.workers, key })
        : h("p", { class: "quiet" }, "There has been no worker yet."),
      more(all.next, link("workers", { after: all.next }), { first: after && "#/workers" }),
    ),
  ];
}

function summary(fleet) {
  const busy = fleet.workers.filter((each) => each.jobs.length).length;
  const left = fleet.more ? `, and ${f.count(fleet.more)} more that are not shown` : "";
  return `${f.plural(fleet.workers.length, "worker")}, ${f.count(busy)} at work${left}`;
}
