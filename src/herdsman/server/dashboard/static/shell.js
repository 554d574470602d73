// What stands around every page: the navigation, who is signed in, and whether the page is live.

import { h } from "./dom.js";
import { icon } from "./icons.js";
import { button } from "./parts.js";
import { can, who } from "./session.js";

const SECTIONS = [
  ["overview", "Overview", "#/", "look"],
  ["jobs", "Jobs", "#/jobs", "jobs"],
  ["workers", "Workers", "#/workers", "look"],
  ["pools", "Pools and leases", "#/pools", "jobs"],
  ["decisions", "Decisions", "#/decisions", "look"],
  ["failures", "Failures", "#/failures", "look"],
  ["money", "Money", "#/money", "look"],
  ["events", "Events", "#/events", "look"],
  ["settings", "Settings", "#/settings", "settings"],
  ["tokens", "Tokens", "#/tokens", "tokens"],
];
const LIVE = {
  live: ["good", "Live"],
  away: ["bad", "Reconnecting"],
  off: ["dim", "Updates every few seconds"],
  paused: ["dim", "Paused"],
};

export function shell({ section, menu, live, onMenu, onTheme, onLeave }) {
  return [
    h("a", { class: "skip", href: "#main", onclick: skip, key: "skip" }, "Skip to the content"),
    h(
      "header",
      { class: menu ? "side open" : "side", key: "side" },
      h(
        "div",
        { class: "brandrow" },
        h("a", { class: "brand", href: can("look") ? "#/" : "#/jobs" }, mark(), "Herdsman"),
        h(
          "button",
          {
            type: "button",
            class: "button menu",
            "aria-label": "Menu",
            "aria-expanded": String(menu),
            "aria-controls": "nav",
            onclick: onMenu,
            "data-test": "menu",
          },
          icon(menu ? "close" : "menu"),
        ),
      ),
      h(
        "nav",
        {
          "aria-label": "Main",
          id: "nav",
          onclick: (event) => menu && event.target.closest("a") && onMenu(),
        },
        h("ul", {}, SECTIONS.filter(allowed).map((each) => entry(each, section))),
      ),
      foot(live, onTheme, onLeave),
    ),
    h("main", { id: "main", tabindex: "-1", key: "main", hook: { opaque: true } }),
    h("div", { id: "notices", key: "notices", hook: { opaque: true } }),
  ];
}

const allowed = ([, , , verb]) => can(verb);

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function mark() {
  return h("img", { src: "/assets/icon.svg", alt: "", width: "28", height: "28" });
}

function entry([name, text, href], section) {
  const current = name === section ? "page" : null;
  return h(
    "li",
    { key: name },
    h("a", { href, "aria-current": current, "data-test": `nav-${name}` }, icon(name), text),
  );
}

function foot(live, onTheme, onLeave) {
  const [kind, text] = LIVE[live];
  const me = who();
  return h(
    "div",
    { class: "foot" },
    h(
      "p",
      { class: "live", "data-test": "live", "data-live": live },
      h("span", { class: `dot ${kind}`, "aria-hidden": "true" }),
      text,
    ),
    h(
      "p",
      { class: "me", "data-test": "me", title: `${me.name}, ${me.role}` },
      h("span", { class: "strong" }, me.name),
      h("span", { class: "quiet" }, me.agent ? `${me.role} for ${me.agent}` : me.role),
    ),
    h(
      "div",
      { class: "row" },
      button("Theme", onTheme, {
        kind: "plain",
        test: "theme",
        label: "Change between light and dark",
        before: icon("theme"),
      }),
      button("Sign out", onLeave, { kind: "plain", test: "signout", before: icon("out") }),
    ),
  );
}
