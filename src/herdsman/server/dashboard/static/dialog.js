// Questions before something is done, and short notices after it. The browser's own dialog keeps the focus inside.

import { h, patch } from "./dom.js";
import { sentence } from "./format.js";
import { icon } from "./icons.js";
import { button, cli, say } from "./parts.js";

// Asks, and then does it: the dialog stays until `act` has succeeded, and shows why it has not.
export function ask({ title, text, command, action, danger, act }) {
  const body = () => [
    text && h("p", {}, text),
    h("p", { class: "small quiet" }, "The same in a terminal:"),
    cli(command()),
  ];
  return dialog({ title, body, action, danger, act });
}

// `body(redraw)` is drawn again after each change of its fields.
export function dialog({ title, body, action, danger, act, wide, cancel = "Not now" }) {
  const box = document.createElement("dialog");
  const state = { busy: false, problem: null };
  const draw = () => patch(box, frame());
  const close = () => box.close();

  async function submit(event) {
    event.preventDefault();
    if (state.busy) return;
    Object.assign(state, { busy: true, problem: null });
    draw();
    try {
      await act();
      close();
    } catch (problem) {
      Object.assign(state, { busy: false, problem });
      draw();
    }
  }

  function frame() {
    return h(
      "form",
      {
        class: "dialog",
        method: "dialog",
        onsubmit: submit,
        "aria-labelledby": "dialog-title",
        "data-test": "dialog",
      },
      h("h2", { id: "dialog-title" }, title),
      body(draw),
      state.problem && h("p", { class: "trouble", role: "alert" }, sentence(state.problem.message)),
      h(
        "div",
        { class: "choices" },
        button(cancel, close, { test: "dialog-cancel" }),
        action &&
          h(
            "button",
            {
              type: "submit",
              class: `button ${danger ? "danger" : "main"}`,
              disabled: state.busy,
              "data-test": "dialog-confirm",
            },
            state.busy ? "One moment…" : action,
          ),
      ),
    );
  }

  box.setAttribute("aria-labelledby", "dialog-title");
  if (wide) box.className = "wide";
  return opened(box, draw);
}

function opened(box, draw) {
  const before = document.activeElement;
  document.body.append(box);
  draw();
  box.showModal();
  box.querySelector("[data-first]")?.focus();
  return new Promise((done) => {
    box.addEventListener("close", () => {
      patch(box, []);
      box.remove();
      if (before?.isConnected) before.focus();
      done();
    });
  });
}

export function closeDialogs() {
  for (const each of document.querySelectorAll("dialog[open]")) each.close();
}

export function notice(text, kind = "good") {
  const place = document.getElementById("notices");
  const note = document.createElement("div");
  const end = () => note.remove();
  note.className = `notice ${kind}`;
  note.dataset.test = "notice";
  patch(note, [
    h("span", {}, text),
    h("button", { type: "button", class: "copy", "aria-label": "Close", onclick: end }, icon("close")),
  ]);
  place?.append(note);
  say(text);
  if (kind === "good") setTimeout(end, 6000);
}
