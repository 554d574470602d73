// Line drawings of our own, on a grid of 20.

import { h } from "./dom.js";

const PATHS = {
  overview: "M3 10h5V3H3zM3 17h5v-4H3zM12 17h5v-7h-5zM12 7h5V3h-5z",
  jobs: "M7 5h10M7 10h10M7 15h10M3 5h.01M3 10h.01M3 15h.01",
  workers: "M3 4h14v8H3zM7 16h6M10 12v4M6 8h3",
  pools: "M10 3l7 4-7 4-7-4zM3 11l7 4 7-4",
  decisions: "M10 17v-5M10 12L5 7M10 12l5-5M5 7V3M5 7h4M15 7V3M15 7h-4",
  failures: "M10 3l8 14H2zM10 8v4M10 14.5h.01",
  money:
    "M10 2v16M14 5.5C13 4.500 11.500 4 10 4 7.500 4 6 5.300 6 7c0 4 8 2 8 6 0 1.700-1.500 3-4 3-1.500 0-3-.5-4-1.500",
  events: "M2 10h4l2-6 4 12 2-6h4",
  settings: "M3 6h8M15 6h2M3 14h2M9 14h8M11 4v4h4V4zM5 12v4h4v-4z",
  tokens: "M12.500 12a5 5 0 1 0-4-4L3 13.500V17h3.500v-2.500H9v-2.500z",
  menu: "M3 5h14M3 10h14M3 15h14",
  close: "M5 5l10 10M15 5L5 15",
  copy: "M7 7h10v10H7zM13 7V3H3v10h4",
  check: "M4 10.500l4 4 8-9",
  theme: "M10 3a7 7 0 1 0 7 7 5.500 5.500 0 0 1-7-7z",
  out: "M8 17H4V3h4M8 10h9M14 7l3 3-3 3",
  next: "M8 5l5 5-5 5",
  back: "M12 5l-5 5 5 5",
};

export function icon(name) {
  return h(
    "svg",
    { viewBox: "0 0 20 20", class: "icon", "aria-hidden": "true", focusable: "false" },
    h("path", { d: PATHS[name] }),
  );
}
