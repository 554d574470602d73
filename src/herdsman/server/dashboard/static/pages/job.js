// One job: what it does, where its time and money went, what it wrote and what it made.

import { find, get, part, query } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import {
  attemptsCard,
  factsCard,
  historyCard,
  payloadCard,
  terminalCard,
  timelineCard,
} from "../job_cards.js";
import { bar, button, card, code, empty, facts, heading, pill, say, told, when } from "../parts.js";
import { pictures } from "../pictures.js";
import { can } from "../session.js";
import { cancelMany, retryMany } from "./jobs.js";

const HELD = ["claimed", "running"];
const ENDED = ["done", "dead_letter", "cancelled"];
const MOST_LINES = 5000;

export default function job({ id, reload }) {
  const base = `/jobs/${part(id)}`;
  const log = { lines: [], since: null };
  let before = null;
  return {
    title: `Job ${f.shortId(id)}`,
    every: pace,
    wants: (event) => (event.kind === "job" ? event.object_id === id : event.kind === "hold"),
    load: async (signal) => {
      const seen = await load(id, base, log, signal);
      if (before !== null && before !== seen.job.status) say(`The job is now ${f.words(seen.job.status)}`);
      before = seen.job.status;
      return seen;
    },
    view: (seen) => view(seen, log, reload),
  };
}

// Progress and lines of the log are no events: a job that runs is looked at by the clock.
function pace(seen) {
  if (!seen) return 3000;
  if (HELD.includes(seen.job.status)) return 1000;
  return ENDED.includes(seen.job.status) ? null : 4000;
}

async function load(id, base, log, signal) {
  const [found, timeline, attempts, history, eta, why] = await Promise.all([
    get(base, signal),
    get(`${base}/timeline`, signal),
    get(`${base}/attempts`, signal),
    get(`${base}/events`, signal),
    get(`${base}/eta`, signal),
    get(`/why/job/${part(id)}`, signal),
    readLog(base, log, signal),
  ]);
  const result = ENDED.includes(found.status) ? await find(`${base}/result`, signal) : null;
  return { job: found, timeline, attempts: attempts.attempts, history: history.events, eta, why, result };
}

// Only what came since the last look.
async function readLog(base, log, signal) {
  for (let rounds = 0; rounds < 20; rounds += 1) {
    const page = await get(query(`${base}/logs`, { since: log.since }), signal);
    for (const piece of page.pieces) log.lines.push(...piece.lines);
    if (log.lines.length > MOST_LINES) log.lines.splice(0, log.lines.length - MOST_LINES);
    const moved = page.next !== null && page.next !== log.since;
    log.since = page.next ?? log.since;
    if (!moved || !page.pieces.length) return;
  }
}

function view(seen, log, reload) {
  const { job: shown } = seen;
  return [
    heading(`Job ${f.shortId(shown.job_id)}`, {
      pill: h("span", { "data-test": "job-status" }, pill(shown.status)),
      actions: actions(shown, reload),
      note: [
        `${shown.type} in pool ${shown.pool}, created `,
        when(shown.created_at),
        `, ${f.words(shown.reason)}`,
      ],
      back: { href: "#/jobs", text: "Jobs" },
    }),
    HELD.includes(shown.status) && running(shown),
    h(
      "div",
      { class: "grid split", key: "grid" },
      h(
        "div",
        { class: "stack" },
        whyCard(seen),
        timelineCard(seen),
        resultCard(seen),
        logCard(log, shown),
        attemptsCard(seen.attempts),
      ),
      h(
        "div",
        { class: "stack" },
        factsCard(shown),
        payloadCard(shown),
        terminalCard(shown),
        historyCard(seen.history),
      ),
    ),
  ];
}

function actions(shown, reload) {
  const ended = ENDED.includes(shown.status);
  const ids = [shown.job_id];
  return [
    can("cancel") && !ended &&
    button("Cancel", () => void cancelMany(ids, reload), { kind: "danger", test: "cancel" }),
    can("retry") && ended && button("Retry", () => void retryMany(ids, reload), { test: "retry" }),
  ];
}

function running(shown) {
  const known = shown.progress !== null;
  return h(
    "section",
    { class: "card", "aria-label": "Progress", key: "progress", "data-test": "job-progress" },
    h(
      "div",
      { class: "cardhead" },
      h("h2", {}, known ? `${f.percent(shown.progress)} done` : "Running"),
      h(
        "p",
        { class: "quiet", "data-test": "progress-note" },
        shown.progress_note ?? (known ? "" : "it has not said how far it is"),
      ),
      shown.cancel_requested && pill("cancel asked for", { tone: "warn" }),
    ),
    bar(shown.progress ?? 0, "Progress of the job", { kind: "run", test: "progress" }),
  );
}

function whyCard({ why, eta, job: shown }) {
  return card(
    "Why",
    { test: "why" },
    h("ul", { class: "reasons" }, why.because.map((each, index) => h("li", { key: index }, told(each)))),
    shown.last_error && !why.because.some((each) => each.includes(shown.last_error)) &&
      h("p", { class: "trouble", "data-test": "last-error" }, shown.last_error),
    !ENDED.includes(shown.status) && outlook(eta),
  );
}

function outlook(eta) {
  const likely = (span) =>
    `in ${f.duration(span.p50)}, four times out of five within ${f.duration(span.p80)}`;
  return h(
    "div",
    { class: "eta", "data-test": "eta", key: "eta" },
    facts([
      ["In the line", eta.position && `number ${f.count(eta.position)}`],
      ["Starts", eta.start && likely(eta.start)],
      ["Ends", eta.finish && likely(eta.finish)],
      ["Known from", eta.basis],
    ]),
  );
}

function resultCard({ result, job: shown }) {
  if (result === null || shown.status !== "done") return null;
  const files = outputs(result.result);
  return card(
    "Result",
    {
      test: "result",
      note: result.saved_gpu_seconds !== null &&
        `found at its service: ${f.duration(result.saved_gpu_seconds)} of GPU time saved`,
    },
    files.length > 0 && pictures(shown.job_id, files),
    code(result.result, "Result", "result-json"),
  );
}

function outputs(result) {
  const listed = result?.outputs ?? result?.files;
  return Array.isArray(listed) ? listed.filter((each) => typeof each?.name === "string") : [];
}

function logCard(log, shown) {
  const follow = { mount: toEnd, update: stay };
  return card(
    "Log",
    { test: "log", note: HELD.includes(shown.status) ? "live" : null },
    log.lines.length
      ? h(
        "pre",
        {
          class: "code log",
          tabindex: "0",
          role: "log",
          "aria-label": "Log of the job",
          "aria-live": "off",
          hook: follow,
          "data-test": "log-lines",
        },
        log.lines.join("\n"),
      )
      : empty(
        "It has written nothing",
        "What a handler prints is shown here, as it is printed.",
        `herdsman logs ${shown.job_id} --follow`,
      ),
  );
}

const ends = new WeakMap();

function toEnd(box) {
  box.scrollTop = box.scrollHeight;
  ends.set(box, true);
  box.addEventListener(
    "scroll",
    () => ends.set(box, box.scrollTop + box.clientHeight >= box.scrollHeight - 8),
  );
}

// Who has scrolled up to read is left there.
function stay(box) {
  if (ends.get(box)) box.scrollTop = box.scrollHeight;
}
