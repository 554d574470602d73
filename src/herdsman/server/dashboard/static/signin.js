// The form that asks for a token.

import { get } from "./api.js";
import { h } from "./dom.js";
import { sentence } from "./format.js";
import { cli } from "./parts.js";
import { forget, keep, know } from "./session.js";

const PEOPLE = ["look", "jobs"];

// `why` says why the person is asked again; `done` is called when the token is good.
export function signin({ why, done, redraw }) {
  const state = { busy: false, why };

  async function submit(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    const secret = String(form.get("token")).trim();
    if (!secret) return tell("Paste a token first.");
    Object.assign(state, { busy: true, why: null });
    redraw();
    keep(secret, form.get("keep") === "on");
    const refused = await enter();
    state.busy = false;
    if (refused === null) done();
    else tell(refused);
  }

  function tell(text) {
    state.why = text;
    redraw();
    document.getElementById("token")?.focus();
  }

  return () => view(state, submit);
}

// Null when the token is good for these pages, else a sentence.
export async function enter() {
  try {
    const me = await get("/me");
    if (!PEOPLE.some((verb) => me.can.includes(verb))) {
      forget();
      return `This token has the role ${me.role}, which sees no pages. Ask an admin for one with the role viewer.`;
    }
    know(me);
    return null;
  } catch (problem) {
    if (problem.status === 401) return refusal(problem);
    return sentence(problem.message);
  }
}

export function refusal(problem) {
  forget();
  return `${sentence(problem.message)} Paste a token that is good, or make a new one with the command below.`;
}

function view(state, submit) {
  return h(
    "main",
    { class: "signin", id: "main" },
    h(
      "form",
      { class: "card", onsubmit: submit, "data-test": "signin", autocomplete: "off" },
      h(
        "div",
        { class: "brand" },
        h("img", { src: "/assets/icon.svg", alt: "", width: "32", height: "32" }),
        "Herdsman",
      ),
      h("h1", {}, "Sign in"),
      state.why && h("p", { class: "trouble", role: "alert", "data-test": "signin-why" }, state.why),
      h("label", { for: "token" }, "Token"),
      h("input", {
        id: "token",
        name: "token",
        type: "password",
        autocomplete: "off",
        spellcheck: "false",
        required: true,
        placeholder: "hm_…",
        "aria-describedby": "token-help",
        "data-test": "token",
      }),
      h(
        "p",
        { class: "small quiet", id: "token-help" },
        "herdsman up printed one when it started for the first time.",
      ),
      h(
        "label",
        { class: "choice" },
        h("input", { type: "checkbox", name: "keep", "data-test": "keep" }),
        "Keep me signed in on this browser",
      ),
      h(
        "button",
        { type: "submit", class: "button main", disabled: state.busy, "data-test": "signin-button" },
        state.busy ? "One moment…" : "Sign in",
      ),
      h("p", { class: "small quiet" }, "No token? On the machine of the server:"),
      cli("herdsman token create my-browser --role operator"),
    ),
  );
}
