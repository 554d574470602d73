// The cards of a job's page that tell of its past and of what was asked for.

import * as commands from "./commands.js";
import { h } from "./dom.js";
import * as f from "./format.js";
import { card, cli, code, facts, idLink, pill, table, tone, when } from "./parts.js";
import { link, linkTo } from "./router.js";
import { can } from "./session.js";

const SEGMENTS = {
  queue: "Queue",
  boot: "Worker boots",
  run: "Run",
  result: "Result",
  backoff: "Wait for retry",
};

export function timelineCard({ timeline }) {
  const { segments } = timeline;
  const begin = Math.min(...segments.map((each) => Date.parse(each.from)));
  const end = Math.max(begin + 1, ...segments.map((each) => (each.to ? Date.parse(each.to) : f.now())));
  const total = timeline.cost === null
    ? f.duration(timeline.seconds)
    : `${f.duration(timeline.seconds)}, ${f.money(timeline.cost)}`;
  return card(
    "Timeline",
    { test: "timeline", note: `${total} in all` },
    h("ol", { class: "timeline" }, segments.map((each, index) => segment(each, index, begin, end - begin))),
  );
}

function segment(each, index, begin, length) {
  const from = Date.parse(each.from);
  const to = each.to ? Date.parse(each.to) : f.now();
  const style = { left: `${(100 * (from - begin)) / length}%`, width: `${(100 * (to - from)) / length}%` };
  const name = each.attempt ? `${SEGMENTS[each.what]} ${each.attempt}` : SEGMENTS[each.what];
  const kind = each.outcome && each.outcome !== "done" ? "bad" : tone(each.what);
  const title = [name, each.outcome && ended(each.outcome), each.worker && `on ${each.worker}`].filter(
    Boolean,
  ).join(", ");
  return h(
    "li",
    { key: index, "data-test": `segment-${each.what}`, title },
    h(
      "span",
      {},
      name,
      each.outcome && each.outcome !== "done" &&
        h("span", { class: "small quiet" }, ` ${ended(each.outcome)}`),
    ),
    h("div", { class: "track", "aria-hidden": "true" }, h("div", { class: `span ${kind}`, style })),
    h("span", { class: "number" }, f.duration((to - from) / 1000)),
    h("span", { class: "number quiet" }, each.cost === null ? "" : f.money(each.cost)),
  );
}

export function attemptsCard(attempts) {
  if (!attempts.length) return null;
  const columns = [
    { name: "Attempt", number: true, cell: (row) => row.attempt },
    {
      name: "Worker",
      cell: (row) => (can("look") ? idLink("workers", row.worker_id) : f.shortId(row.worker_id)),
    },
    { name: "Began", cell: (row) => when(row.claimed_at) },
    { name: "Took", number: true, cell: took },
    { name: "Outcome", cell: (row) => outcome(row.outcome) },
    {
      name: "Why",
      main: true,
      cell: (row) => row.error ?? (row.reason ? f.words(row.reason) : "it still runs"),
    },
  ];
  return card(
    "Attempts",
    { test: "attempts-card" },
    table({ caption: "Attempts", columns, rows: attempts, key: (row) => row.claim_token, test: "attempts" }),
  );
}

// One that went back to the queue is pending again: its attempt was cut short.
const ended = (word) => (word === "pending" ? "cut short" : f.words(word));

function outcome(word) {
  return word === "pending" ? pill(word, { text: ended(word), tone: "warn" }) : pill(word ?? "running");
}

function took(row) {
  if (!row.ended_at) return when(row.claimed_at, "since");
  return f.duration((Date.parse(row.ended_at) - Date.parse(row.claimed_at)) / 1000);
}

export function factsCard(shown) {
  return card(
    "Facts",
    { test: "facts" },
    facts([
      ["Id", h("span", { class: "id whole", "data-test": "job-id" }, shown.job_id)],
      ["Type", shown.type],
      ["Pool", can("look") ? h("a", { href: linkTo("pools", shown.pool) }, shown.pool) : shown.pool],
      ["Agent", shown.agent],
      ["Priority", String(shown.priority)],
      [
        "Tags",
        shown.tags.length
          ? h(
            "span",
            { class: "pills" },
            shown.tags.map((tag) => h("a", { class: "tag", href: link("jobs", { tag }), key: tag }, tag)),
          )
          : null,
      ],
      ["Attempts", `${shown.attempts} of ${shown.max_attempts}`],
      ["Interruptions", shown.interruptions ? String(shown.interruptions) : null],
      [
        "Worker",
        shown.worker_id && (can("look") ? idLink("workers", shown.worker_id) : f.shortId(shown.worker_id)),
      ],
      ["Model", shown.model],
      ["GPU memory", shown.gpu_memory_mb && f.memory(shown.gpu_memory_mb)],
      ["Key", shown.concurrency_key],
      ["Time limit", shown.timeout_seconds && f.duration(shown.timeout_seconds)],
      ["Put off", shown.admission],
      ["Service job", shown.service_job_id],
      ["Service status", shown.service_status],
      ["Failure class", shown.failure_class && f.words(shown.failure_class)],
      ["Started", shown.started_at && when(shown.started_at)],
      ["Finished", shown.finished_at && when(shown.finished_at)],
    ]),
  );
}

export function payloadCard(shown) {
  return card("Payload", { test: "payload" }, code(shown.payload, "Payload", "payload-json"));
}

export function terminalCard(shown) {
  return card(
    "In a terminal",
    { test: "terminal", note: "a job like this one, once more" },
    cli(commands.reproduce(shown), "A job like this one"),
    cli(`herdsman why ${shown.job_id}`, "Why it is so"),
  );
}

export function historyCard(history) {
  const step = (event) =>
    h(
      "li",
      { key: event.seq },
      when(event.ts),
      h(
        "span",
        {},
        pill(event.to_status),
        " ",
        h("span", { class: "small quiet" }, `${f.words(event.reason)}, by ${f.actor(event.actor)}`),
      ),
    );
  return card("History", { test: "history" }, h("ol", { class: "lines" }, history.map(step)));
}
