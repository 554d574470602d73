// How the server was set up. Settings are changed where they come from, not here.

import { get } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { card, cli, empty, heading, pill, table } from "../parts.js";
import { link } from "../router.js";

export default function settings({ query: asked, redraw }) {
  const state = { text: asked.get("text") ?? "", changed: asked.get("changed") === "true" };

  function keep() {
    history.replaceState(
      null,
      "",
      link("settings", { text: state.text, changed: state.changed ? "true" : null }),
    );
    redraw();
  }

  return {
    title: "Settings",
    load: (signal) => get("/settings", signal),
    view: (seen) => view(seen.settings, state, keep),
  };
}

function view(all, state, keep) {
  const wanted = state.text.trim().toLowerCase();
  const rows = all
    .filter((row) => !state.changed || row.origin !== "default")
    .filter((row) => !wanted || `${row.name} ${row.description}`.toLowerCase().includes(wanted));
  const groups = [...new Set(rows.map((row) => row.group))];
  return [
    heading("Settings", { note: "Read once, at the start. Secrets stay hidden." }),
    h(
      "div",
      { class: "filters", role: "search", "aria-label": "Filter settings", key: "filters" },
      h(
        "div",
        { class: "field" },
        h("label", { for: "filter-text" }, "Contains"),
        h("input", {
          id: "filter-text",
          value: state.text,
          autocomplete: "off",
          "data-filter": true,
          "data-test": "filter-text",
          placeholder: "a name or a word; press / to come here",
          oninput: (event) => ((state.text = event.target.value), keep()),
        }),
      ),
      h(
        "label",
        { class: "choice" },
        h("input", {
          type: "checkbox",
          checked: state.changed,
          onchange: (event) => ((state.changed = event.target.checked), keep()),
          "data-test": "only-changed",
        }),
        "Only those that were changed",
      ),
    ),
    groups.length
      ? groups.map((group) => groupCard(group, rows.filter((row) => row.group === group)))
      : empty(
        "No setting fits",
        "Every setting can be set in the environment, in .env or in herdsman.toml.",
        "herdsman config --explain",
      ),
    card("In a terminal", { test: "terminal" }, cli("herdsman config --explain")),
  ];
}

const COLUMNS = [
  { name: "Name", cell: (row) => h("code", { class: "id wrap" }, row.name) },
  { name: "Value", cell: (row) => shown(row.value) },
  { name: "Default", cell: (row) => h("span", { class: "quiet" }, shown(row.default)) },
  {
    name: "From",
    cell: (
      row,
    ) => (row.origin === "default"
      ? h("span", { class: "quiet" }, "default")
      : pill(row.origin, { tone: "run" })),
  },
  { name: "Meaning", main: true, cell: (row) => h("span", { class: "small" }, row.description) },
];

function shown(value) {
  if (value === null || value === "") return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function groupCard(group, rows) {
  return card(
    f.words(group)[0].toUpperCase() + f.words(group).slice(1),
    { test: "settings-group" },
    table({ caption: `Settings: ${group}`, even: true, columns: COLUMNS, rows, key: (row) => row.name }),
  );
}
