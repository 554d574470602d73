// What the fleet costs, and what was saved.

import { get, query } from "../api.js";
import { chart } from "../charts.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { card, cli, heading, stat, table } from "../parts.js";
import { go, link, linkTo } from "../router.js";

const DAY = 86_400_000;
const TIMES = [[1, "Today"], [7, "7 days"], [30, "30 days"]];

export default function money({ query: asked }) {
  const days = Number(asked.get("days")) || 7;
  return {
    title: "Money",
    every: 30_000,
    load: async (signal) => {
      const [cost, overview] = await Promise.all([
        get(query("/cost", { days }), signal),
        get("/overview", signal),
      ]);
      return { cost, saved: overview.recovered };
    },
    view: (seen) => view(seen, days),
  };
}

function view({ cost, saved }, days) {
  return [
    heading("Money", { note: "In USD; days are those of UTC.", actions: choice(days) }),
    h(
      "div",
      { class: "stats", key: "stats" },
      stat("Per hour now", f.money(cost.per_hour_usd), {
        note: "of the machines of this moment",
        test: "per-hour",
      }),
      stat("Today", f.money(cost.today_usd), { note: "since midnight UTC", test: "today" }),
      stat(days === 1 ? "In all" : `In ${days} days`, f.money(cost.total_usd), {
        note: `${f.plural(cost.done_jobs, "job")} done`,
        test: "total",
      }),
      stat("Per job done", f.money(cost.per_done_job_usd), { note: "idle time included", test: "per-job" }),
      stat("GPU time saved", f.duration(saved.saved_gpu_seconds), {
        note: `${f.plural(saved.jobs, "result")} found instead of made again`,
        test: "saved",
      }),
    ),
    cost.total_usd === 0 &&
    h(
      "p",
      { class: "quiet", key: "free" },
      "Machines of your own cost nothing here. Rented ones have a price per hour, from their provider.",
    ),
    h(
      "div",
      { class: "grid full", key: "plots" },
      plotCard("Cost by hour", "last 24 hours", cost.by_hour, { test: "by-hour" }),
      plotCard("Cost by day", days === 1 ? "today" : `last ${days} days`, everyDay(cost), {
        days: true,
        test: "by-day",
      }),
    ),
    h(
      "div",
      { class: "grid", key: "tables" },
      tableCard("By pool", cost.by_pool, poolName),
      tableCard("By type of job", cost.by_type, (row) => row.key),
    ),
    card("In a terminal", { test: "terminal" }, cli(`herdsman cost --by pool --days ${days}`)),
  ];
}

function choice(days) {
  return h(
    "label",
    { class: "choice" },
    "Time",
    h(
      "select",
      {
        value: String(days),
        onchange: (event) => go(link("money", { days: event.target.value })),
        "data-test": "money-days",
        "data-filter": true,
      },
      TIMES.map(([value, text]) => h("option", { value: String(value), key: value }, text)),
    ),
  );
}

function plotCard(title, note, rows, { days, test }) {
  const at = rows.map((row) => Date.parse(row.key));
  const most = rows.reduce((best, row) => (row.total_usd > best.total_usd ? row : best), { total_usd: 0 });
  const total = rows.reduce((sum, row) => sum + row.total_usd, 0);
  const shown = days ? f.day : f.hour;
  const summary = most.key
    ? `${f.money(total)} in all; most was ${f.money(most.total_usd)}, ${days ? "on" : "at"} ${
      shown(Date.parse(most.key))
    }.`
    : "Nothing was spent in this time.";
  const plot = {
    kind: "bar",
    at,
    days,
    unit: f.money,
    most: total ? 0 : 1,
    series: [
      { name: "at work", values: rows.map((row) => row.busy_usd), stack: "cost" },
      { name: "idle", values: rows.map((row) => row.idle_usd), stack: "cost" },
    ],
  };
  return card(title, { note, test }, chart({ key: title, label: title, summary, plot }));
}

// Days on which nothing was spent are days, too.
function everyDay(cost) {
  const known = new Map(cost.by_day.map((row) => [row.key, row]));
  const first = Date.parse(cost.since);
  const days = Array.from(
    { length: cost.days },
    (_, index) => new Date(first + index * DAY).toISOString().slice(0, 10),
  );
  return days.map((key) => known.get(key) ?? { key, busy_usd: 0, idle_usd: 0, total_usd: 0 });
}

const poolName = (row) => h("a", { href: linkTo("pools", row.key) }, row.key);

function tableCard(title, rows, named) {
  const columns = [
    { name: title.slice(3)[0].toUpperCase() + title.slice(4), cell: named },
    { name: "At work", number: true, cell: (row) => f.money(row.busy_usd) },
    { name: "Idle", number: true, cell: (row) => f.money(row.idle_usd) },
    { name: "Together", number: true, cell: (row) => f.money(row.total_usd) },
  ];
  return card(
    title,
    {},
    rows.length
      ? table({ caption: title, columns, rows, key: (row) => row.key })
      : h("p", { class: "quiet" }, "Nothing was spent in this time."),
  );
}
