// One worker: its state, its GPUs, its job, and its story.

import { get, part, post } from "../api.js";
import * as commands from "../commands.js";
import { ask, notice } from "../dialog.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import {
  button,
  card,
  cli,
  code,
  facts,
  gpuBar,
  heading,
  idLink,
  pill,
  progress,
  told,
  when,
} from "../parts.js";
import { linkTo } from "../router.js";
import { can } from "../session.js";

export default function worker({ id, reload }) {
  return {
    title: `Worker ${f.shortId(id)}`,
    every: 3000,
    wants: (event) => event.kind === "job" || event.object_id === id,
    load: async (signal) => {
      const [found, why, fleet] = await Promise.all([
        get(`/workers/${part(id)}`, signal),
        get(`/why/worker/${part(id)}`, signal),
        get("/fleet", signal),
      ]);
      return { found, why, living: fleet.workers.find((each) => each.worker_id === id) };
    },
    view: (seen) => view(seen, reload),
  };
}

function view({ found, why, living }, reload) {
  return [
    heading(`Worker ${f.shortId(found.worker_id)}`, {
      pill: h("span", { "data-test": "worker-status" }, pill(found.status)),
      note: [`in pool ${found.pool}, ${f.words(found.reason)}, for `, when(found.entered_status_at, "since")],
      actions: can("drain") && ["spawning", "active"].includes(found.status) &&
        drainButton(found.worker_id, reload),
      back: { href: "#/workers", text: "Workers" },
    }),
    h(
      "div",
      { class: "grid split", key: "grid" },
      h("div", { class: "stack" }, nowCard(living), whyCard(why), historyCard(why.history)),
      h("div", { class: "stack" }, factsCard(found), terminalCard(found), detailsCard(found)),
    ),
  ];
}

function drainButton(id, reload) {
  const act = async () => {
    const answer = await post(`/workers/${part(id)}/drain`);
    notice(answer.already ? "It was leaving already" : "It finishes what it holds and leaves");
    reload();
  };
  const question = {
    title: "Drain this worker?",
    text:
      "It takes no new job, finishes what it holds and leaves. Where it is needed, another one is started.",
    command: () => commands.drainWorker(id),
    action: "Drain",
    danger: true,
    act,
  };
  return button("Drain", () => void ask(question), { kind: "danger", test: "drain" });
}

function nowCard(living) {
  if (!living) {
    return card(
      "Now",
      { test: "now" },
      h("p", { class: "quiet" }, "It is gone: it holds no job and no GPU."),
    );
  }
  return card(
    "Now",
    { test: "now" },
    h(
      "div",
      { class: "stack" },
      living.jobs.length
        ? living.jobs.map(held)
        : h("p", { class: "quiet" }, "It is idle, and waits for a job."),
      living.gpus.map(gpuBar),
    ),
  );
}

function held(job) {
  return h(
    "div",
    { key: job.job_id, "data-test": "held-job" },
    h(
      "p",
      {},
      idLink("jobs", job.job_id),
      ` ${job.type} `,
      pill(job.status),
      " for ",
      when(job.since, "since"),
    ),
    job.progress_note && h("p", { class: "small quiet" }, job.progress_note),
    progress(job, "worker-progress"),
  );
}

function whyCard(why) {
  const decided = why.decided.map((each, index) =>
    h(
      "li",
      { key: index },
      when(each.last),
      h(
        "span",
        {},
        told(each.reason),
        each.times > 1 && ` (${each.times} times)`,
        each.said && h("span", { class: "small quiet" }, " ", told(each.said)),
      ),
    )
  );
  return card(
    "Why",
    { test: "why" },
    h("ul", { class: "reasons" }, why.because.map((each, index) => h("li", { key: index }, told(each)))),
    decided.length > 0 && h("ul", { class: "lines" }, decided),
  );
}

function historyCard(history) {
  const step = (move, index) =>
    h(
      "li",
      { key: index },
      when(move.ts),
      h(
        "span",
        {},
        pill(move.to_status),
        " ",
        h("span", { class: "small quiet" }, `${f.words(move.reason)}, by ${f.actor(move.actor)}`),
      ),
    );
  return card("History", { test: "history" }, h("ol", { class: "lines" }, history.map(step)));
}

function factsCard(found) {
  return card(
    "Facts",
    { test: "facts" },
    facts([
      ["Id", h("span", { class: "id whole" }, found.worker_id)],
      ["Pool", h("a", { href: linkTo("pools", found.pool) }, found.pool)],
      ["Machine", found.instance_type],
      ["Made", when(found.created_at)],
      ["Heartbeat", when(found.last_heartbeat)],
      ["Per hour", found.cost_per_hour === null ? null : f.money(found.cost_per_hour)],
      ["Takes", found.metadata.types?.join(", ")],
      ["Error", found.error],
      ["Warning", found.warning],
      ["Version", found.version],
    ]),
  );
}

function terminalCard(found) {
  return card("In a terminal", { test: "terminal" }, cli(`herdsman why ${found.worker_id}`, "Why it is so"));
}

function detailsCard(found) {
  return card(
    "What it told",
    { test: "metadata" },
    h("details", {}, h("summary", {}, "All that was recorded"), code(found.metadata, "What the worker told")),
  );
}
