// Tables that stay tables for screen readers and become cards on a phone, and the way from page to page.

import { h } from "./dom.js";
import { icon } from "./icons.js";

export const NONE = "–"; // there is none, or it is not known

// Columns are {name, cell, head, number, main, minor}; on a phone each row becomes a card with the names beside the values.
export function table({ caption, columns, rows, key, test, attributes, even }) {
  return h(
    "div",
    { class: "tablebox", tabindex: "0", role: "group", "aria-label": caption },
    h(
      "table",
      { role: "table", class: even ? "even" : null, "data-test": test },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(headCell))),
      h(
        "tbody",
        { role: "rowgroup" },
        rows.map((row) => bodyRow(row, columns, key(row), attributes?.(row))),
      ),
    ),
  );
}

function headCell(column) {
  const props = {
    role: "columnheader",
    scope: "col",
    class: column.number ? "number" : null,
    key: column.name,
  };
  return h("th", props, column.head ?? column.name);
}

function bodyRow(row, columns, key, attributes) {
  const cell = (column) => {
    const inside = column.cell(row);
    const props = { role: "cell", class: kinds(column, inside), "data-label": column.name, key: column.name };
    return h("td", props, h("div", { class: "cell" }, inside));
  };
  return h("tr", { role: "row", key, "data-key": key, ...attributes }, columns.map(cell));
}

const KINDS = ["number", "main", "minor"];

// A phone leaves out what is empty or minor.
function kinds(column, inside) {
  const found = KINDS.filter((kind) => column[kind]);
  if (inside === NONE || inside?.children?.[0]?.text === NONE) found.push("none");
  return found.join(" ") || null;
}

export function more(next, address, { first } = {}) {
  if (!next && !first) return null;
  return h(
    "nav",
    { class: "paging", "aria-label": "Pages" },
    first && h("a", { class: "button", href: first, "data-test": "first-page" }, "Newest"),
    next && h("a", { class: "button", href: address, "data-test": "next-page" }, "Older", icon("next")),
  );
}
