// Who may call the API, for admins.

import { del, get, part, post, query } from "../api.js";
import * as commands from "../commands.js";
import { ask, dialog, notice } from "../dialog.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { button, card, cli, copier, heading, more, pill, table, when } from "../parts.js";
import { link } from "../router.js";

const ROLES = {
  viewer: "sees everything, changes nothing",
  submitter: "submits, sees and cancels the jobs of one agent",
  operator: "runs the fleet and anybody's jobs",
  admin: "everything, and gives rights to others",
  enroller: "adds new workers, and nothing else",
  metrics: "reads metrics and health",
};
const MACHINES = ["worker", "bootstrap"];
const DAY = 86_400;

export default function tokens({ query: asked, reload }) {
  const after = asked.get("after");
  return {
    title: "Tokens",
    load: (signal) => get(query("/tokens", { after, limit: 100 }), signal),
    view: (seen) => view(seen, after, reload),
  };
}

function view(seen, after, reload) {
  const columns = [...COLUMNS, { name: "Action", cell: (row) => living(row) && revokeButton(row, reload) }];
  return [
    heading("Tokens", {
      note: "Their secrets are kept nowhere; each is shown once, when it is made.",
      actions: button("New token", () => void create(reload), { kind: "main", test: "new-token" }),
    }),
    card(
      "Of people and programs",
      { test: "tokens-card" },
      list(
        "Tokens of people and programs",
        seen.tokens.filter((row) => !MACHINES.includes(row.role)),
        columns,
        "tokens",
      ),
    ),
    card(
      "Of workers",
      { test: "worker-tokens-card", note: "made and renewed by themselves" },
      list(
        "Tokens of workers",
        seen.tokens.filter((row) => MACHINES.includes(row.role)),
        columns,
        "worker-tokens",
      ),
      more(seen.next, link("tokens", { after: seen.next }), { first: after && "#/tokens" }),
    ),
  ];
}

function list(caption, rows, columns, test) {
  if (!rows.length) return h("p", { class: "quiet" }, "There is none on this page.");
  return table({ caption, columns, rows, key: (row) => row.id, test });
}

const COLUMNS = [
  {
    name: "Name",
    main: true,
    cell: (row) =>
      h("span", { title: row.name }, MACHINES.includes(row.role) ? f.shortId(row.name) : row.name),
  },
  { name: "Role", cell: (row) => row.role },
  { name: "Agent", cell: (row) => row.agent ?? "–" },
  { name: "State", cell: state },
  { name: "Used", number: true, cell: (row) => when(row.used_at) },
  { name: "Made", number: true, cell: (row) => when(row.created_at) },
  { name: "Ends", number: true, cell: (row) => (row.expires_at ? when(row.expires_at) : "never") },
  { name: "Id", cell: (row) => h("span", { class: "id" }, row.id) },
];

function living(row) {
  return !row.revoked_at && (!row.expires_at || Date.parse(row.expires_at) > f.now());
}

function state(row) {
  if (row.revoked_at) return pill("revoked");
  return living(row) ? pill("good", { tone: "good" }) : pill("expired");
}

function revokeButton(row, reload) {
  const act = async () => {
    await del(`/tokens/${part(row.id)}`);
    notice(`The token ${row.name} is revoked`);
    reload();
  };
  const question = {
    title: `Revoke the token ${row.name}?`,
    text: "Every replica refuses it within 5 seconds. This cannot be undone.",
    command: () => commands.revokeToken(row.id),
    action: "Revoke",
    danger: true,
    act,
  };
  return button("Revoke", () => void ask(question), { kind: "small danger", test: "revoke-token" });
}

async function create(reload) {
  const given = { name: "", role: "viewer", agent: "", days: "" };
  const made = { token: null };
  await dialog({
    title: "New token",
    action: "Create",
    body: (redraw) => fields(given, redraw),
    act: async () => {
      made.token = await post("/tokens", {
        name: given.name.trim(),
        role: given.role,
        agent: given.role === "submitter" && given.agent ? given.agent.trim() : null,
        expires_in_seconds: given.days ? Number(given.days) * DAY : null,
      });
    },
  });
  if (made.token) {
    reload();
    await show(made.token);
  }
}

function fields(given, redraw) {
  const set = (name) => (event) => ((given[name] = event.target.value), redraw());
  return [
    field(
      "Name",
      "token-name",
      h("input", {
        id: "token-name",
        required: true,
        autocomplete: "off",
        "data-first": true,
        value: given.name,
        oninput: set("name"),
        "data-test": "token-name",
      }),
    ),
    field(
      "Role",
      "token-role",
      h(
        "select",
        { id: "token-role", value: given.role, onchange: set("role"), "data-test": "token-role" },
        Object.entries(ROLES).map(([role, said]) =>
          h("option", { value: role, key: role }, `${role}: ${said}`)
        ),
      ),
    ),
    given.role === "submitter" &&
    field(
      "Agent, if it is not the name",
      "token-agent",
      h("input", {
        id: "token-agent",
        autocomplete: "off",
        value: given.agent,
        oninput: set("agent"),
        "data-test": "token-agent",
      }),
    ),
    field(
      "Good for so many days; without a number, for ever",
      "token-days",
      h("input", {
        id: "token-days",
        type: "number",
        min: "1",
        max: "3650",
        value: given.days,
        oninput: set("days"),
        "data-test": "token-days",
      }),
    ),
    h("p", { class: "small quiet" }, "The same in a terminal:"),
    cli(commands.createToken(given)),
  ];
}

function field(label, id, control) {
  return h("div", { class: "field", key: id }, h("label", { for: id }, label), control);
}

function show(token) {
  return dialog({
    title: "Here is the token",
    cancel: "I have kept it",
    body: () => [
      h("p", {}, `Copy it now: it is shown this once. It is for ${token.name}, as ${token.role}.`),
      h(
        "div",
        { class: "cli" },
        h("code", { tabindex: "0", "data-test": "new-secret" }, token.token),
        copier(token.token, "Copy the token"),
      ),
    ],
  });
}
