// Everything on one page.

import { get, post } from "../api.js";
import { chart } from "../charts.js";
import * as commands from "../commands.js";
import { ask, notice } from "../dialog.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { button, card, empty, heading, pill, stat, table, told, when } from "../parts.js";
import { link, linkTo } from "../router.js";
import { can } from "../session.js";

const QUEUED = ["scheduled", "pending"];
const HOUR = 3_600_000;

export default function overview({ reload }) {
  return {
    title: "Overview",
    every: 5000,
    wants: () => true,
    load: async (signal) => {
      const [seen, stopped] = await Promise.all([get("/overview", signal), get("/control/holds", signal)]);
      return { seen, holds: stopped.holds };
    },
    view: (found) => view(found, reload),
  };
}

function view({ seen, holds }, reload) {
  const total = Object.values(seen.jobs).reduce((sum, each) => sum + each, 0);
  return [
    heading("Overview", { actions: pauseButton(holds, reload), note: led(seen.leader) }),
    holds.map((each) => held(each, reload)),
    figures(seen),
    total === 0 && welcome(),
    h("div", { class: "grid full", key: "plots" }, queueCard(seen.series), workersCard(seen.series)),
    h(
      "div",
      { class: "grid", key: "lists" },
      h("div", { class: "stack" }, queueTable(seen), statuses(seen.jobs)),
      decisions(seen.last_decisions),
    ),
  ];
}

function led(leader) {
  if (leader === null) {
    return "Nobody leads now: no worker is started or ended. Start a control plane: herdsman up";
  }
  return h(
    "span",
    { "data-test": "leader" },
    `Led by ${leader.who} for `,
    when(leader.since, "since"),
    `, epoch ${leader.epoch}`,
  );
}

function pauseButton(holds, reload) {
  if (!can("pause") || holds.some((each) => each.scope === "all")) return null;
  const question = {
    title: "Pause everything?",
    text:
      "No job is given out until you resume. Workers finish what they hold and stay; jobs are still taken in.",
    command: () => commands.pauseAll(),
    action: "Pause all",
    danger: true,
    act: () => change("/control/pause", {}, "Paused: no job is given out", reload),
  };
  return button("Pause all", () => void ask(question), { test: "pause" });
}

function held(hold, reload) {
  const what = hold.scope === "all" ? "Everything" : f.words(hold.scope.replace(":", " "));
  const question = {
    title: `Resume ${what.toLowerCase()}?`,
    text: "Jobs are given out again. What is held by another pause stays held.",
    command: () => commands.resume(hold.scope),
    action: "Resume",
    act: () => change("/control/resume", { scope: hold.scope }, "Resumed: jobs are given out again", reload),
  };
  return h(
    "div",
    { class: "held", key: hold.scope, "data-test": "hold" },
    h(
      "p",
      {},
      `${f.sentence(what).slice(0, -1)} is ${hold.kind === "drain" ? "drained" : "paused"} by ${
        f.actor(hold.actor)
      } for `,
      when(hold.since, "since"),
      hold.reason && `: ${hold.reason}`,
      hold.until && [", until ", when(hold.until)],
    ),
    can("pause") && button("Resume", () => void ask(question), { test: "resume" }),
  );
}

async function change(path, body, said, reload) {
  await post(path, body);
  notice(said);
  reload();
}

function figures(seen) {
  const active = seen.workers.active ?? 0;
  const others = Object.entries(seen.workers).filter(([state, many]) => state !== "active" && many);
  const waiting = QUEUED.reduce((sum, each) => sum + seen.jobs[each], 0);
  return h(
    "div",
    { class: "stats", key: "figures", "data-test": "figures" },
    stat("Oldest wait", seen.oldest_wait_s === null ? "none" : f.duration(seen.oldest_wait_s), {
      note: seen.oldest_job ? f.shortId(seen.oldest_job) : "nothing waits",
      href: seen.oldest_job && linkTo("jobs", seen.oldest_job),
      test: "oldest-wait",
    }),
    stat("Queued", f.count(waiting), {
      note: retries(seen.jobs),
      href: link("jobs", { status: QUEUED }),
      test: "queued",
    }),
    stat("Running", f.count(seen.running), {
      note: `${f.count(seen.jobs.done)} done`,
      href: link("jobs", { status: ["claimed", "running"] }),
      test: "running",
    }),
    stat("Active workers", f.count(active), {
      note: others.map(([state, many]) => `${many} ${state}`).join(", ") || "no others",
      href: "#/workers",
      test: "active-workers",
    }),
    stat("Cost per hour", f.money(seen.cost_per_hour), {
      note: `${f.money(seen.cost_today)} today`,
      href: "#/money",
      test: "cost-per-hour",
    }),
    stat("GPU time saved", f.duration(seen.recovered.saved_gpu_seconds), {
      note: `${f.plural(seen.recovered.jobs, "result")} found again`,
      test: "saved",
    }),
  );
}

function retries(jobs) {
  return jobs.failed ? `${f.plural(jobs.failed, "job waits", "jobs wait")} for a retry` : "no retries wait";
}

function welcome() {
  return empty(
    "No job has been submitted yet",
    "Run this in another terminal and watch them pass through here:",
    "herdsman submit demo --count 20",
    "welcome",
  );
}

function queueCard(series) {
  const at = series.at.map(Date.parse);
  const names = Object.keys(series.queued).sort(); // so that each keeps its colour
  const last = series.total.at(-1) ?? 0;
  const most = Math.max(0, ...series.total);
  const peak = at[series.total.indexOf(most)];
  const summary = at.length
    ? `${f.count(last)} queued now; at most ${f.count(most)}${
      most ? `, at ${f.hour(peak)}` : ""
    } in the last hour.`
    : "No cycle has been recorded yet.";
  const columns = names.length > 1 ? names : [];
  const lines = columns.length
    ? columns.map((name) => ({ name, values: series.queued[name], fill: true, stack: "queue" }))
    : [{ name: "queued", values: series.total, fill: true }];
  const plot = { kind: "line", at, whole: true, step: "before", series: lines, most: 4 };
  return card(
    `Queue by ${series.by}`,
    { test: "queue-plot", note: span(at) },
    at.length < 2
      ? h("p", { class: "quiet" }, summary)
      : chart({ key: "queue", label: "Queued jobs", summary, plot }),
  );
}

function workersCard(series) {
  const at = series.at.map(Date.parse);
  const running = series.running.some((each) => each !== null);
  const lines = [{ name: "active workers", values: series.active }];
  if (running) lines.push({ name: "running jobs", values: series.running });
  const summary = at.length
    ? `${f.plural(series.active.at(-1), "worker")} active now, at most ${Math.max(...series.active)}${
      running ? `; ${f.plural(series.running.at(-1) ?? 0, "job")} running` : ""
    }.`
    : "No cycle has been recorded yet.";
  const plot = { kind: "line", at, whole: true, step: "before", series: lines, most: 4 };
  return card(
    "Workers and running jobs",
    { test: "workers-plot", note: span(at) },
    at.length < 2
      ? h("p", { class: "quiet" }, summary)
      : chart({ key: "workers", label: "Workers", summary, plot }),
  );
}

function span(at) {
  return at.length > 1 && at.at(-1) - at[0] < 0.9 * HOUR ? `since ${f.hour(at[0])}` : "last hour";
}

function queueTable(seen) {
  const columns = [
    {
      name: "Type",
      cell: (row) => h("a", { href: link("jobs", { status: QUEUED, type: row.type }) }, row.type),
    },
    { name: "Pool", cell: (row) => h("a", { href: linkTo("pools", row.pool) }, row.pool) },
    { name: "Queued", number: true, cell: (row) => f.count(row.queued) },
    { name: "Oldest", number: true, cell: (row) => f.duration(row.oldest_s) },
  ];
  const key = (row) => `${row.type} ${row.pool}`;
  return card(
    "Waiting now",
    { test: "queue-card" },
    seen.queue.length
      ? table({ caption: "Jobs that wait, by type and pool", columns, rows: seen.queue, key, test: "queue" })
      : empty(
        "Nothing waits",
        "Every job has been given to a worker, or has ended.",
        "herdsman submit demo --count 5",
      ),
  );
}

function decisions(steps) {
  return card(
    "Last decisions",
    { test: "last-decisions", actions: h("a", { class: "small", href: "#/decisions" }, "All decisions") },
    steps.length
      ? h("ul", { class: "lines" }, steps.map(decision))
      : h("p", { class: "quiet" }, "The control loop has not had to do anything in this time."),
  );
}

function decision(step, index) {
  return h(
    "li",
    { key: `${step.cycle} ${index}` },
    when(step.at),
    h(
      "span",
      {},
      told(step.words),
      step.times > 1 && ` (${step.times} times) `,
      !step.done && [" ", pill("not done", { tone: "warn" })],
      " ",
      h("a", { class: "small whole", href: `#/decisions/${step.cycle}` }, `cycle ${step.cycle}`),
    ),
  );
}

function statuses(jobs) {
  const shown = Object.entries(jobs).filter(([, many]) => many);
  if (!shown.length) return null;
  return card(
    "All jobs",
    { test: "statuses" },
    h(
      "div",
      { class: "pills" },
      shown.map(([status, many]) =>
        h(
          "a",
          { href: link("jobs", { status }), key: status },
          pill(status, { text: `${f.count(many)} ${f.words(status)}` }),
        )
      ),
    ),
  );
}
