// Pools with their workers, GPUs with their memory, and the leases on them.

import { get, part, post, query } from "../api.js";
import * as commands from "../commands.js";
import { ask, notice } from "../dialog.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { bar, button, card, empty, heading, idLink, more, pill, table, when } from "../parts.js";
import { link, linkTo } from "../router.js";
import { can } from "../session.js";

const SILENT = 60_000; // not measured for so long: its worker is gone

export default function pools({ query: asked, reload }) {
  const all = asked.get("all") === "true";
  const after = asked.get("after");
  return {
    title: "Pools and leases",
    every: 5000,
    wants: (event) => event.kind !== "policy",
    load: (signal) => load({ all, after }, signal),
    view: (seen) => view(seen, { all, after }, reload),
  };
}

async function load({ all, after }, signal) {
  const leases = get(query("/leases", { all: all ? "true" : null, after }), signal);
  if (!can("look")) return { leases: await leases };
  const [held, gpus, named, fleet, overview] = await Promise.all([
    leases,
    get("/gpus", signal),
    get(query("/workers/pool", { limit: 100 }), signal),
    get("/fleet", signal),
    get("/overview", signal),
  ]);
  return { leases: held, gpus: gpus.gpus, pools: together(named.pools, fleet.workers, overview.queue) };
}

// Pools that were asked for by name, and those of the settings or of jobs alone that have workers or jobs.
function together(named, workers, queue) {
  const found = new Map(named.map((pool) => [pool.pool_id, { ...pool, named: true }]));
  const of = (name) => {
    if (!found.has(name)) {
      found.set(name, { pool_id: name, named: false, workers: {}, queued: 0, status: null });
    }
    return found.get(name);
  };
  for (const worker of workers) {
    const pool = of(worker.pool);
    if (!pool.named) pool.workers[worker.status] = (pool.workers[worker.status] ?? 0) + 1;
  }
  for (const line of queue) {
    const pool = of(line.pool);
    if (!pool.named) pool.queued += line.queued;
  }
  return [...found.values()].sort((one, other) => one.pool_id.localeCompare(other.pool_id));
}

function view({ leases, gpus, pools: found }, wanted, reload) {
  return [
    heading("Pools and leases"),
    found && poolsCard(found),
    gpus && gpusCard(gpus, reload),
    leasesCard(leases, wanted, reload),
  ];
}

const POOLS = [
  { name: "Pool", cell: (row) => h("a", { href: linkTo("pools", row.pool_id) }, row.pool_id) },
  {
    name: "State",
    cell: (row) => (row.status ? pill(row.status) : h("span", { class: "small quiet" }, "not asked for by name")),
  },
  {
    name: "Serves",
    cell: (row) => [row.model_id, row.adapter, row.variant].filter(Boolean).join(", ") || "any model",
  },
  { name: "Workers", cell: (row) => counted(row.workers) },
  { name: "Wanted", number: true, cell: (row) => (row.named ? f.count(row.desired_workers) : "–") },
  { name: "Queued", number: true, cell: (row) => f.count(row.queued) },
  { name: "Used", number: true, cell: (row) => when(row.used_at ?? null) },
];

function counted(workers) {
  const shown = Object.entries(workers).filter(([, many]) => many);
  return shown.length
    ? h("span", { class: "pills" }, shown.map(([state, many]) => pill(state, { text: `${many} ${state}` })))
    : "none";
}

function poolsCard(found) {
  return card(
    "Pools",
    { test: "pools-card" },
    found.length
      ? table({ caption: "Pools", columns: POOLS, rows: found, key: (row) => row.pool_id, test: "pools" })
      : empty(
        "No pool has workers or jobs",
        "To keep workers warm under a name:",
        "herdsman pool create painters --model sdxl --workers 2",
      ),
  );
}

function gpusCard(gpus, reload) {
  const columns = [
    { name: "GPU", cell: (row) => h("span", { title: row.uuid }, `${row.node_id} ${row.gpu_index}`) },
    { name: "Model", cell: (row) => row.name },
    { name: "Memory", cell: memory },
    { name: "Leased", number: true, cell: (row) => f.memory(row.leased_mb) },
    { name: "Outsiders", minor: true, number: true, cell: (row) => f.memory(row.outside_mb) },
    { name: "Busy", number: true, cell: (row) => (row.utilisation === null ? "–" : `${row.utilisation} %`) },
    { name: "Worker", cell: (row) => idLink("workers", row.worker_id) },
    { name: "State", cell: (row) => health(row, reload) },
    { name: "Measured", number: true, cell: (row) => when(row.measured_at) },
  ];
  const key = (row) => row.uuid;
  const [living, gone] = [gpus.filter((row) => !silent(row)), gpus.filter(silent)];
  return card(
    "GPUs",
    { test: "gpus-card" },
    living.length > 0 && table({ caption: "GPUs", columns, rows: living, key, test: "gpus" }),
    gpus.length === 0 && empty(
      "No GPU is known",
      "Workers report theirs. A machine without a worker does it with:",
      "herdsman gpus report --every 10",
    ),
    gone.length > 0 && h(
      "details",
      { key: "silent", "data-test": "silent-gpus" },
      h("summary", {}, `${f.plural(gone.length, "GPU")} not measured lately`),
      table({ caption: "GPUs that were not measured lately", columns, rows: gone, key }),
    ),
  );
}

function silent(gpu) {
  return !gpu.quarantined_at && f.now() - Date.parse(gpu.measured_at) > SILENT;
}

function memory(gpu) {
  const text = `${f.memory(gpu.used_mb)} of ${f.memory(gpu.total_mb)}`;
  const share = gpu.total_mb ? gpu.used_mb / gpu.total_mb : 0;
  const name = `Memory of GPU ${gpu.gpu_index} of ${gpu.node_id}`;
  return h(
    "div",
    { class: "gpu alone" },
    bar(share, name, { text, kind: share > 0.9 ? "warn" : "" }),
    h("span", { class: "small quiet" }, text),
  );
}

function health(gpu, reload) {
  if (silent(gpu)) return pill("silent", { tone: "dim" });
  if (!gpu.quarantined_at) return pill("ok", { tone: "good" });
  const act = async () => {
    await post(`/gpus/${part(gpu.uuid)}/clear`);
    notice("The quarantine is lifted");
    reload();
  };
  const question = {
    title: "Lift the quarantine?",
    text:
      `It was set because of this: ${gpu.quarantine_reason}. What is in use on the GPU now counts as outsiders' from here on.`,
    command: () => commands.clearGpu(gpu.uuid),
    action: "Lift it",
    act,
  };
  return [
    pill("quarantined", { tone: "bad" }),
    " ",
    can("revoke") && button("Clear", () => void ask(question), { kind: "small", test: "clear-gpu" }),
  ];
}

function leasesCard(found, { all, after }, reload) {
  const columns = [
    { name: "Lease", cell: (row) => h("span", { class: "id", title: row.lease_id }, f.shortId(row.lease_id)) },
    { name: "Agent", cell: (row) => row.agent },
    { name: "State", cell: (row) => pill(row.status) },
    {
      name: "GPU",
      cell: (row) => (row.mode === "cpu" ? "CPU" : `${row.node_id ?? "?"} ${row.gpu_index ?? ""}`),
    },
    { name: "Memory", number: true, cell: (row) => (row.exclusive ? "all of it" : f.memory(row.memory_mb)) },
    {
      name: "Worker",
      cell: (row) => (can("look") ? idLink("workers", row.worker_id) : f.shortId(row.worker_id ?? "–")),
    },
    { name: "Begun", number: true, cell: (row) => when(row.created_at) },
    { name: "Ends", number: true, cell: (row) => when(row.ended_at ?? row.expires_at) },
  ];
  if (can("revoke")) {
    columns.push({
      name: "Action",
      cell: (row) => row.status === "active" && revokeButton(row, reload),
    });
  }
  const shown = all ? link("pools") : link("pools", { all: "true" });
  return card(
    "Leases",
    {
      test: "leases-card",
      actions: h(
        "a",
        { class: "small", href: shown, "data-test": "all-leases" },
        all ? "Only those that are held" : "Show those that have ended",
      ),
    },
    found.leases.length
      ? table({ caption: "Leases", columns, rows: found.leases, key: (row) => row.lease_id, test: "leases" })
      : empty(
        "No lease is held",
        "Programs that Herdsman did not start take their part of a GPU with client.lease(...). See what is held with:",
        "herdsman leases",
      ),
    more(found.next, link("pools", { all: all ? "true" : null, after: found.next }), {
      first: after && shown,
    }),
  );
}

function revokeButton(lease, reload) {
  const act = async () => {
    await post(`/leases/${part(lease.token)}/revoke`);
    notice("The lease is revoked");
    reload();
  };
  const question = {
    title: "Take this lease back?",
    text: `${lease.agent} learns of it with its next heartbeat, and must stop using the GPU.`,
    command: () => commands.revokeLease(lease.token),
    action: "Revoke",
    danger: true,
    act,
  };
  return button("Revoke", () => void ask(question), { kind: "small danger", test: "revoke-lease" });
}
