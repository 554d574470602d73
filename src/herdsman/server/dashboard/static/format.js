// Numbers and instants as people read them, always with their units.

let ahead = 0; // so many milliseconds the server's clock is ahead of this one

export function setClock(header) {
  const server = Date.parse(header ?? "");
  if (Number.isNaN(server)) return;
  const seen = server + 500 - Date.now(); // the header has whole seconds
  ahead = Math.abs(seen) < 2000 ? 0 : seen;
}

export const now = () => Date.now() + ahead;
export const instant = (text) => (text === null || text === undefined ? null : Date.parse(text));

const UNITS = [
  [86_400, "d", 3600, "h"],
  [3600, "h", 60, "min"],
  [60, "min", 1, "s"],
];

export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const length = Math.max(0, seconds);
  if (length < 9.95) return `${length < 0.05 && length > 0 ? "<0.1" : trim(length)} s`;
  for (const [size, unit, smaller, second] of UNITS) {
    if (Math.round(length) < size) continue;
    const whole = Math.floor(Math.round(length) / size);
    const rest = Math.floor((Math.round(length) % size) / smaller);
    return rest && whole < 10 ? `${whole} ${unit} ${rest} ${second}` : `${whole} ${unit}`;
  }
  return `${Math.round(length)} s`;
}

function trim(length) {
  return length.toFixed(1).replace(/\.0$/, "");
}

export function ago(at) {
  const seconds = (now() - at) / 1000;
  if (seconds < -1) return `in ${coarse(-seconds)}`;
  return seconds < 3 ? "just now" : `${coarse(seconds)} ago`;
}

export function since(at) {
  return coarse(Math.max(0, (now() - at) / 1000));
}

function coarse(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

const EXACT = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const NUMBER = new Intl.NumberFormat("en-US");

export const exact = (at) => EXACT.format(at);
export const clock = (at) => CLOCK.format(at);
export const hour = (at) => HOUR.format(at);
export const day = (at) => DAY.format(at);
export const count = (number) => NUMBER.format(number);
export const percent = (part) => `${Math.round(100 * part)} %`;

export function money(usd) {
  if (usd === null || usd === undefined) return "–";
  if (usd !== 0 && Math.abs(usd) < 0.1) return `$${usd.toFixed(usd < 0.001 ? 6 : 4)}`;
  return `$${usd.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

export function memory(mb) {
  if (mb < 1024) return `${count(mb)} MB`;
  return `${(mb / 1024).toFixed(mb % 1024 === 0 ? 0 : 1)} GB`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export function shortId(id) {
  return id.length <= 20 ? id : `${id.slice(0, 8)}…${id.slice(-6)}`;
}

// worker:gpu-1 is "worker gpu-1".
export function actor(text) {
  const [role, ...name] = text.split(":");
  return name.length ? `${role} ${shortId(name.join(":")).replaceAll("-", "\u2011")}` : text;
}

// Words of the API for people: dead_letter is "dead letter".
export const words = (name) => String(name).replaceAll("_", " ");

const NAMED = /^(gpu-\d|[0-9a-f]{32})/; // an id keeps its letters

export function sentence(text) {
  const said = String(text).trim();
  if (!said) return "";
  const begun = NAMED.test(said) ? said : said[0].toUpperCase() + said.slice(1);
  return /[.!?:]$/.test(begun) ? begun : `${begun}.`;
}

export function json(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
