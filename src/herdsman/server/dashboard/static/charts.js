// Plots by Chart.js, which is fetched when the first one is drawn; each says in words what it shows.

import { h } from "./dom.js";
import { clock, day, hour } from "./format.js";
import { onTheme } from "./theming.js";

const LIBRARY = "/assets/vendor/chart.js";
const MOST_LINES = 6;
const drawn = new WeakMap();
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
let loading = null;

function library() {
  loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = LIBRARY;
    script.onload = () => done(window.Chart);
    script.onerror = () => failed(new Error("no plots"));
    document.head.append(script);
  });
  return loading;
}

// `plot` is {kind, at, series: [{name, values, fill, stack}], unit, step}.
export function chart({ key, label, summary, plot, test }) {
  return h(
    "figure",
    { class: "plot", key, "data-test": test },
    h("div", { class: "canvas", hook: hook(plot, `${label}. ${summary}`) }),
    legend(plot.series.slice(0, MOST_LINES)),
    h("figcaption", { class: "small quiet" }, summary),
  );
}

function legend(series) {
  if (series.length < 2) return null;
  const entry = (each, index) =>
    h("li", { key: each.name }, h("span", { class: `key line${index + 1}` }), each.name);
  return h("ul", { class: "legend", "aria-hidden": "true" }, series.map(entry));
}

function hook(plot, words) {
  return {
    opaque: true,
    mount: (box) => begin(box, plot, words),
    update: (box) => change(box, plot, words),
    unmount: end,
  };
}

function begin(box, plot, words) {
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", words);
  box.append(canvas);
  const mine = { canvas, plot, chart: null, off: onTheme(() => mine.chart && paint(mine)) };
  drawn.set(box, mine);
  library().then(
    () => box.isConnected && paint(mine),
    () => box.classList.add("without"),
  );
}

function change(box, plot, words) {
  const mine = drawn.get(box);
  if (!mine) return;
  mine.canvas.setAttribute("aria-label", words);
  mine.plot = plot;
  if (mine.chart) fill(mine);
}

function fill(mine) {
  const palette = colours();
  const data = dataOf(mine.plot, palette);
  if (mine.chart.data.datasets.length !== data.datasets.length) return paint(mine);
  mine.chart.data.labels = data.labels;
  data.datasets.forEach((each, index) => Object.assign(mine.chart.data.datasets[index], each));
  mine.chart.options = options(mine.plot, palette);
  mine.chart.update("none");
}

function paint(mine) {
  mine.chart?.destroy();
  const palette = colours();
  mine.chart = new window.Chart(mine.canvas, {
    type: mine.plot.kind,
    data: dataOf(mine.plot, palette),
    options: options(mine.plot, palette),
  });
}

function end(box) {
  const mine = drawn.get(box);
  mine?.off();
  mine?.chart?.destroy();
  drawn.delete(box);
}

// As they are painted: a canvas knows nothing of the theme, and `light-dark(…)` is no colour to it.
function colours() {
  const probe = document.body.appendChild(document.createElement("span"));
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const found = {
    lines: Array.from({ length: MOST_LINES }, (_, index) => read(`--line-${index + 1}`)),
    text: read("--quiet"),
    grid: read("--edge"),
    back: read("--card"),
    ink: read("--ink"),
  };
  probe.remove();
  return found;
}

function faint(colour) {
  return colour.replace(/^rgb\((.*)\)$/, "rgba($1, 0.2)");
}

function dataOf(plot, palette) {
  return {
    labels: plot.at,
    datasets: plot.series.slice(0, MOST_LINES).map((each, index) =>
      set(plot, each, index, palette.lines[index])
    ),
  };
}

function set(plot, { name, values, fill: filled, stack }, index, colour) {
  const bars = plot.kind === "bar";
  return {
    label: name,
    data: bars ? values : values.map((y, index) => ({ x: plot.at[index], y })),
    stack,
    borderColor: colour,
    backgroundColor: bars ? colour : faint(colour),
    borderWidth: bars ? 0 : 2,
    borderRadius: bars ? 3 : 0,
    maxBarThickness: 32,
    pointRadius: 0,
    pointHitRadius: 12,
    stepped: plot.step ?? false,
    // Down to the line below, which has its steps; what Chart.js calls a stack has slopes instead.
    fill: filled ? (stack && index > 0 ? "-1" : "origin") : false,
    spanGaps: false,
  };
}

function options(plot, palette) {
  const stacked = plot.series.some((each) => each.stack);
  return {
    responsive: true,
    maintainAspectRatio: false,
    animation: still.matches || plot.kind === "line" ? false : { duration: 250 },
    interaction: { mode: "index", intersect: false },
    scales: { x: across(plot, palette), y: up(plot, palette, stacked) },
    plugins: { legend: { display: false }, tooltip: tip(plot, palette) },
  };
}

function across(plot, palette) {
  const shown = plot.days ? day : hour;
  const ticks = { color: palette.text, maxTicksLimit: 7, maxRotation: 0, autoSkipPadding: 16 };
  const stacked = plot.series.some((each) => each.stack);
  const common = { stacked, grid: { display: false }, border: { color: palette.grid } };
  if (plot.kind === "bar") {
    return {
      ...common,
      ticks: { ...ticks, callback: (index) => shown(plot.at[index]) },
    };
  }
  const [min, max] = [plot.at[0], plot.at.at(-1)];
  const afterBuildTicks = (axis) => (axis.ticks = marks(min, max));
  return {
    ...common,
    type: "linear",
    min,
    max,
    afterBuildTicks,
    ticks: { ...ticks, callback: (value) => shown(value) },
  };
}

const STEPS = [60, 120, 300, 600, 900, 1800, 3600].map((seconds) => seconds * 1000);

// At round minutes, no more than six.
function marks(min, max) {
  const step = STEPS.find((each) => (max - min) / each <= 6) ?? STEPS.at(-1);
  const found = [];
  for (let at = Math.ceil(min / step) * step; at <= max; at += step) found.push({ value: at });
  return found.length ? found : [{ value: min }];
}

function up(plot, palette, stacked) {
  return {
    stacked,
    beginAtZero: true,
    suggestedMax: plot.most ?? 1,
    border: { display: false },
    grid: { color: palette.grid },
    ticks: {
      color: palette.text,
      maxTicksLimit: 5,
      precision: plot.whole ? 0 : undefined,
      callback: plot.unit,
    },
  };
}

function tip(plot, palette) {
  const shown = plot.days ? day : clock;
  return {
    backgroundColor: palette.ink,
    titleColor: palette.back,
    bodyColor: palette.back,
    padding: 8,
    callbacks: {
      title: (items) => shown(plot.at[items[0].dataIndex]),
      label: (item) => ` ${item.dataset.label}: ${plot.unit ? plot.unit(item.parsed.y) : item.parsed.y}`,
    },
  };
}
