// Failures, grouped by their cause.

import { get, post, query } from "../api.js";
import * as commands from "../commands.js";
import { ask, notice } from "../dialog.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { button, empty, heading, idLink, pill, when } from "../parts.js";
import { go, link } from "../router.js";
import { can } from "../session.js";

const TIMES = [[1, "Last hour"], [24, "Last day"], [168, "Last week"], [744, "Last month"]];

export default function failures({ query: asked, reload }) {
  const hours = Number(asked.get("hours")) || 24;
  return {
    title: "Failures",
    every: 10_000,
    wants: (event) => event.kind === "job" && ["failed", "dead_letter", "pending"].includes(event.to_status),
    load: (signal) => get(query("/failures", { since_hours: hours }), signal),
    view: (seen) => view(seen, hours, reload),
  };
}

function view(seen, hours, reload) {
  const total = seen.groups.reduce((sum, group) => sum + group.count, 0);
  const note = `${f.plural(total, "failure")} in ${f.plural(seen.groups.length, "group")}${
    seen.truncated ? "; only the newest were looked at" : ""
  }`;
  return [
    heading("Failures", { note, actions: choice(hours) }),
    seen.groups.length ? seen.groups.map((group) => groupCard(group, hours, reload)) : empty(
      "Nothing has failed in this time",
      "To see how a failure looks, submit a job that cannot work:",
      `herdsman submit demo --payload '{"seconds": -1}'`,
    ),
  ];
}

function choice(hours) {
  return h(
    "label",
    { class: "choice" },
    "Time",
    h(
      "select",
      {
        value: String(hours),
        onchange: (event) => go(link("failures", { hours: event.target.value })),
        "data-test": "failure-hours",
        "data-filter": true,
      },
      TIMES.map(([value, text]) => h("option", { value: String(value), key: value }, text)),
    ),
  );
}

function groupCard(group, hours, reload) {
  const dead = group.statuses.dead_letter ?? 0;
  return h(
    "section",
    { class: "card", key: group.key, "data-test": "failure-group", "aria-label": group.example },
    h(
      "div",
      { class: "cardhead" },
      h("h2", {}, f.sentence(group.example)),
      h("div", { class: "actions" }, can("requeue") && dead > 0 && requeueButton(group, dead, hours, reload)),
    ),
    h(
      "div",
      { class: "stack small" },
      h(
        "p",
        {},
        h("span", { class: "strong" }, f.plural(group.count, "failure")),
        ` of type ${group.type}`,
        group.failure_class && `, ${f.words(group.failure_class)}`,
        ", last ",
        when(group.last_at),
        ", first ",
        when(group.first_at),
      ),
      h(
        "div",
        { class: "pills" },
        Object.entries(group.statuses).map(([status, many]) =>
          pill(status, { text: `${many} ${f.words(status)}` })
        ),
      ),
      group.sample_error !== group.example &&
        h(
          "pre",
          { class: "code", tabindex: "0", role: "group", "aria-label": "One of the errors" },
          group.sample_error,
        ),
      h("p", {}, "For example ", group.sample_job_ids.map((id) => [idLink("jobs", id), " "])),
    ),
  );
}

function requeueButton(group, dead, hours, reload) {
  const act = async () => {
    const answer = await post("/failures/requeue", { key: group.key, since_hours: hours });
    notice(`${f.plural(answer.changed, "job")} queued again`);
    reload();
  };
  const question = {
    title: `Run ${f.plural(dead, "job")} once more?`,
    text:
      "The jobs of this group that have given up are queued again, with fresh attempts. Fix the cause first, or they will fail again.",
    command: () =>
      commands.retryJobs(group.sample_job_ids) +
      (dead > group.sample_job_ids.length ? `  # and ${dead - group.sample_job_ids.length} more` : ""),
    action: "Requeue",
    act,
  };
  return button(`Requeue ${f.count(dead)}`, () => void ask(question), { test: "requeue" });
}
