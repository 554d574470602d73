// The start: signs in, shows the page of the address, and keeps it up to date.

import { AWAY, onRefused, Problem } from "./api.js";
import { closeDialogs } from "./dialog.js";
import { patch } from "./dom.js";
import { follow } from "./live.js";
import { say, tick, trouble } from "./parts.js";
import { here } from "./router.js";
import { screen } from "./screen.js";
import { can, forget, restore, secret } from "./session.js";
import { shell } from "./shell.js";
import { enter, refusal, signin } from "./signin.js";
import { changeTheme } from "./theming.js";

const app = document.getElementById("app");
const state = {
  live: "paused",
  menu: false,
  current: null,
  stream: null,
  form: null,
  shown: null,
  stranded: false,
};

async function start() {
  onRefused((problem) => leave(refusal(problem)));
  if (restore() === null) return showForm(null);
  const why = await enter();
  if (why === null) open();
  else showForm(why);
}

function showForm(why) {
  close();
  document.title = "Sign in – Herdsman";
  state.form = signin({ why, done: open, redraw: () => patch(app, state.form()) });
  patch(app, state.form());
  document.getElementById("token")?.focus();
}

function open() {
  state.form = null;
  patch(app, []);
  frame();
  listen();
  void show();
}

function close() {
  closeDialogs();
  state.stream?.stop();
  state.current?.stop();
  Object.assign(state, { stream: null, current: null, shown: null, live: "paused", menu: false });
}

function leave(why = null) {
  if (secret() !== null) forget();
  if (why === null) history.replaceState(null, "", "#/"); // who comes next begins at the beginning
  if (state.form === null) showForm(why);
}

function frame() {
  patch(
    app,
    shell({
      ...state,
      section: here().section,
      onMenu: turnMenu,
      onTheme: changeTheme,
      onLeave: () => leave(),
    }),
  );
}

function turnMenu() {
  state.menu = !state.menu;
  frame();
  if (state.menu) document.querySelector("#nav a")?.focus();
}

function listen() {
  state.stream?.stop();
  if (!can("look")) return setLive("off");
  state.stream = follow({
    onEvent: (event) => state.current?.happened(event),
    onState: setLive,
    since: state.stream?.place.id ?? null,
  });
}

function setLive(live) {
  if (state.live === live || state.form !== null) return;
  if (live === "live" && state.stranded) return location.reload();
  if (live === "live" && state.live === "away") void state.current?.start();
  state.live = live;
  frame();
}

async function show() {
  const route = here();
  if (route.name === "overview" && !can("look")) return location.replace("#/jobs");
  // Another search of the same page is a change of what it shows, not another page.
  const place = `${route.name}/${route.id ?? ""}`;
  const moved = state.shown !== place;
  state.shown = place;
  state.menu = false;
  frame();
  const closed = route.verb !== undefined && !can(route.verb);
  const module = await fetched(closed ? "missing" : route.name);
  if (module === null) return stranded();
  state.stranded = false;
  if (state.form !== null || here().name !== route.name) return;
  state.current?.stop();
  const main = document.getElementById("main");
  if (moved) patch(main, []);
  const make = (tools) =>
    module.default({ ...tools, ...route, closed, lastEvent: () => state.stream?.place.id ?? null });
  state.current = screen(main, make, setTitle, !moved);
  await state.current.start();
  if (moved) arrive();
}

const fetched = (name) => import(`./pages/${name}.js`).catch(() => null);

// The server went away before the code of this page had come. A browser may not ask for it twice, so all begins anew.
function stranded() {
  if (state.form !== null) return;
  state.current?.stop();
  state.stranded = true;
  patch(document.getElementById("main"), trouble(new Problem(0, AWAY), () => location.reload()));
}

function setTitle(title) {
  const whole = `${title} – Herdsman`;
  if (document.title !== whole) document.title = whole;
}

function arrive() {
  window.scrollTo(0, 0);
  document.getElementById("title")?.focus({ preventScroll: true });
  say(document.title);
}

function onVisible() {
  if (state.form !== null || state.current === null) return;
  if (document.hidden) {
    state.stream?.stop();
    state.current.hide();
    setLive("paused");
  } else {
    listen();
    void state.current.start();
  }
}

function onKey(event) {
  if (event.key === "Escape" && state.menu) return turnMenu();
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  const filter = document.querySelector("[data-filter]");
  if (filter) {
    event.preventDefault();
    filter.focus();
  }
}

window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) return void start();
  if (state.form === null && secret() !== null) void show();
});
document.addEventListener("visibilitychange", onVisible);
document.addEventListener("keydown", onKey);
setInterval(tick, 1000);
void start();
