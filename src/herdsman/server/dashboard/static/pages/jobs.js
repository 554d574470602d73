// All jobs: filters, pages and choices, with everything that is shown in the address.

import { get, post, query } from "../api.js";
import * as commands from "../commands.js";
import { ask, notice } from "../dialog.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import {
  button,
  card,
  cli,
  empty,
  heading,
  idLink,
  more,
  pill,
  progress,
  table,
  trouble,
  when,
} from "../parts.js";
import { go, link } from "../router.js";
import { can } from "../session.js";
import { submitDialog } from "../submit.js";

const STATES = ["scheduled", "pending", "claimed", "running", "done", "failed", "dead_letter", "cancelled"];
const FIELDS = [["type", "Type"], ["pool", "Pool"], ["agent", "Agent"], ["tag", "Tag"]];
const PAGE = 50;
const TYPING = 400;

export default function jobs({ redraw, reload, query: asked }) {
  const wanted = read(asked);
  const chosen = new Set();
  const page = {
    title: "Jobs",
    every: can("look") ? 10_000 : 3000,
    wants: (event) => event.kind === "job",
    load: (signal) => load(wanted, signal),
    view,
  };

  function view(found) {
    const there = new Set(found.jobs.map((job) => job.job_id));
    for (const id of chosen) if (!there.has(id)) chosen.delete(id);
    return [
      heading("Jobs", {
        actions: can("submit") &&
          button("Submit a job", () => void submitDialog(reload), { kind: "main", test: "submit-job" }),
      }),
      filters(wanted),
      card(
        "List",
        { note: told(found, wanted), test: "jobs-card" },
        chosen.size > 0 && selection(found.jobs),
        found.problem ? trouble(found.problem) : found.jobs.length ? list(found.jobs) : nothing(wanted),
        more(found.next, link("jobs", { ...wanted, after: found.next }), {
          first: wanted.after && link("jobs", { ...wanted, after: null }),
        }),
      ),
    ];
  }

  function list(rows) {
    const acts = can("cancel") || can("retry");
    const columns = acts ? [choice(rows), ...COLUMNS] : COLUMNS;
    return table({ caption: "Jobs, newest first", columns, rows, key: (job) => job.job_id, test: "jobs" });
  }

  function choice(rows) {
    const all = rows.length > 0 && rows.every((job) => chosen.has(job.job_id));
    return {
      name: "Select",
      head: h("input", {
        type: "checkbox",
        "aria-label": "Select all of this page",
        checked: all,
        indeterminate: !all && chosen.size > 0,
        onchange: () => turnAll(rows, all),
        "data-test": "select-all",
      }),
      cell: (job) =>
        h("input", {
          type: "checkbox",
          "aria-label": `Select job ${job.job_id}`,
          checked: chosen.has(job.job_id),
          onchange: () => turn(job.job_id),
          "data-test": "select-job",
        }),
    };
  }

  function turn(id) {
    if (!chosen.delete(id)) chosen.add(id);
    redraw();
  }

  function turnAll(rows, all) {
    for (const job of rows) {
      if (all) chosen.delete(job.job_id);
      else chosen.add(job.job_id);
    }
    redraw();
  }

  function selection(rows) {
    const ids = rows.map((job) => job.job_id).filter((id) => chosen.has(id));
    const done = () => (chosen.clear(), reload());
    return h(
      "div",
      {
        class: "selection",
        role: "group",
        "aria-label": "Selected jobs",
        "data-test": "selection",
        key: "selection",
      },
      h(
        "span",
        { class: "strong", "data-test": "selected-count" },
        `${f.plural(ids.length, "job")} selected`,
      ),
      can("cancel") &&
        button("Cancel", () => void cancelMany(ids, done), { kind: "small danger", test: "bulk-cancel" }),
      can("retry") && button("Retry", () => void retryMany(ids, done), { kind: "small", test: "bulk-retry" }),
      button("Clear", () => (chosen.clear(), redraw()), { kind: "small plain", test: "bulk-clear" }),
    );
  }

  return page;
}

// A filter that cannot be is told in the list, so that whoever types it still has it under their hands.
async function load(wanted, signal) {
  try {
    return await get(query("/jobs", { ...wanted, limit: PAGE }), signal);
  } catch (problem) {
    if (problem.status !== 422) throw problem;
    return { jobs: [], next: null, problem };
  }
}

function read(asked) {
  const wanted = { status: asked.getAll("status"), after: asked.get("after") };
  for (const [name] of FIELDS) wanted[name] = asked.get(name);
  return wanted;
}

const COLUMNS = [
  { name: "Job", cell: (job) => idLink("jobs", job.job_id) },
  { name: "Type", cell: (job) => job.type },
  {
    name: "Status",
    cell: (job) => [pill(job.status), " ", h("span", { class: "small quiet" }, reason(job))],
  },
  { name: "Progress", cell: (job) => progress(job, "row-progress") },
  { name: "Attempts", number: true, cell: (job) => `${job.attempts} of ${job.max_attempts}` },
  { name: "Pool", minor: true, cell: (job) => job.pool },
  { name: "Agent", minor: true, cell: (job) => job.agent },
  {
    name: "Worker",
    cell: (job) => (can("look") ? idLink("workers", job.worker_id) : f.shortId(job.worker_id ?? "–")),
  },
  { name: "Created", number: true, cell: (job) => when(job.created_at) },
  { name: "Ran", number: true, cell: ran },
];

const PLAIN = ["submitted", "claimed", "started", "completed", "cancelled"];

// Only where it says more than the status does.
function reason(job) {
  return PLAIN.includes(job.reason) ? "" : f.words(job.reason);
}

function ran(job) {
  if (!job.started_at) return "–";
  if (!job.finished_at) return job.worker_id ? when(job.started_at, "since") : "–";
  return f.duration((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000);
}

function told(found, wanted) {
  const many = f.plural(found.jobs.length, "job");
  const where = wanted.after ? "further down" : "newest first";
  return found.next ? `${many} of this page, ${where}` : `${many}, ${where}`;
}

function filters(wanted) {
  const set = (change) => go(link("jobs", { ...wanted, after: null, ...change }));
  return h(
    "div",
    { class: "filters", role: "search", "aria-label": "Filter jobs", key: "filters", "data-test": "filters" },
    h(
      "div",
      { class: "chips", role: "group", "aria-label": "Status" },
      STATES.map((state) => chip(state, wanted.status, set)),
    ),
    h(
      "div",
      { class: "fields" },
      FIELDS.map(([name, text], index) => field(name, text, wanted[name], set, index === 0)),
    ),
  );
}

function chip(state, states, set) {
  const on = states.includes(state);
  const next = on ? states.filter((each) => each !== state) : [...states, state];
  return h(
    "button",
    {
      type: "button",
      class: "button chip",
      key: state,
      "aria-pressed": String(on),
      onclick: () => set({ status: next }),
      "data-test": `state-${state}`,
    },
    f.words(state),
  );
}

let typing = null;

function field(name, text, value, set, first) {
  const soon = (event) => {
    clearTimeout(typing);
    const given = event.target.value.trim();
    typing = setTimeout(() => set({ [name]: given }), TYPING);
  };
  const id = `filter-${name}`;
  const props = {
    id,
    value: value ?? "",
    oninput: soon,
    autocomplete: "off",
    spellcheck: "false",
    "data-test": id,
  };
  if (first) Object.assign(props, { "data-filter": true, placeholder: "press / to come here" });
  return h("div", { class: "field", key: name }, h("label", { for: id }, text), h("input", props));
}

function nothing(wanted) {
  const filtered = wanted.status.length || FIELDS.some(([name]) => wanted[name]);
  if (!filtered) {
    return empty("No job yet", "Submit some from a terminal:", "herdsman submit demo --count 20");
  }
  return h(
    "div",
    { class: "empty", "data-test": "empty" },
    h("p", { class: "strong" }, "No job fits these filters"),
    h("a", { class: "button", href: "#/jobs" }, "Show all jobs"),
    wanted.type && cli(commands.submitJob({ type: wanted.type })),
  );
}

export function cancelMany(ids, done) {
  return ask({
    title: ids.length === 1 ? "Cancel this job?" : `Cancel ${ids.length} jobs?`,
    text: "What waits ends at once; what runs ends as soon as its worker has let go.",
    command: () => commands.cancelJobs(ids),
    action: ids.length === 1 ? "Cancel the job" : `Cancel ${ids.length} jobs`,
    danger: true,
    act: () => bulk("/jobs/cancel", ids, "cancelled", done),
  });
}

export function retryMany(ids, done) {
  return ask({
    title: ids.length === 1 ? "Run this job once more?" : `Run ${ids.length} jobs once more?`,
    text: "What has ended is queued again, with fresh attempts.",
    command: () => commands.retryJobs(ids),
    action: "Retry",
    act: () => bulk("/jobs/retry", ids, "queued again", done),
  });
}

async function bulk(path, ids, word, done) {
  const answer = await post(path, { ids });
  const refused = answer.jobs.filter((each) => each.refused);
  notice(`${f.plural(answer.changed, "job")} ${word}`);
  if (refused.length) {
    notice(`${f.plural(refused.length, "job")} left as before: ${refused[0].refused}`, "bad");
  }
  done();
}
