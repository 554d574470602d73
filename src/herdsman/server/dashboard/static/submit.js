// A form for a new job.

import { post } from "./api.js";
import { submitJob } from "./commands.js";
import { dialog, notice } from "./dialog.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { cli } from "./parts.js";
import { go, linkTo } from "./router.js";

const MOST = 1000;

export function submitDialog(done) {
  const given = { type: "demo", payload: '{"seconds": 5}', pool: "default", count: 1 };
  return dialog({
    title: "Submit a job",
    action: "Submit",
    body: (redraw) => fields(given, redraw),
    act: () => submit(given, done),
  });
}

function fields(given, redraw) {
  const set = (name, value) => ((given[name] = value), redraw());
  return [
    field("Type", "submit-type", {
      value: given.type,
      required: true,
      "data-first": true,
      oninput: (e) => set("type", e.target.value.trim()),
    }),
    h(
      "div",
      { class: "field" },
      h("label", { for: "submit-payload" }, "Payload, as JSON"),
      h("textarea", {
        id: "submit-payload",
        value: given.payload,
        spellcheck: "false",
        "data-test": "submit-payload",
        oninput: (event) => set("payload", event.target.value),
      }),
    ),
    h(
      "div",
      { class: "fields" },
      field("Pool", "submit-pool", { value: given.pool, oninput: (e) => set("pool", e.target.value.trim()) }),
      field("How many", "submit-count", {
        type: "number",
        min: "1",
        max: String(MOST),
        value: String(given.count),
        oninput: (e) => set("count", Math.min(MOST, Math.max(1, Number(e.target.value) || 1))),
      }),
    ),
    h("p", { class: "small quiet" }, "The same in a terminal:"),
    cli(submitJob(given)),
  ];
}

function field(label, id, props) {
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    h("input", { id, "data-test": id, autocomplete: "off", ...props }),
  );
}

async function submit(given, done) {
  let payload;
  try {
    payload = JSON.parse(given.payload.trim() || "{}");
  } catch (error) {
    throw new Error(`the payload is not JSON: ${error.message}`);
  }
  const job = { type: given.type, payload, pool: given.pool || "default" };
  const answer = await post("/jobs/submit/batch", { jobs: Array.from({ length: given.count }, () => job) });
  notice(`${plural(answer.jobs.length, "job")} submitted`);
  if (answer.jobs.length === 1) go(linkTo("jobs", answer.jobs[0].job_id));
  else done();
}
