// Addresses: `#/jobs/ID?tab=log`. All that a page shows is in its address, so that it can be sent to somebody.

const ROUTES = [
  [/^$/, "overview", "overview", "look"],
  [/^jobs$/, "jobs", "jobs", "jobs"],
  [/^jobs\/(.+)$/, "job", "jobs", "jobs"],
  [/^workers$/, "workers", "workers", "look"],
  [/^workers\/(.+)$/, "worker", "workers", "look"],
  [/^pools$/, "pools", "pools", "jobs"],
  [/^pools\/(.+)$/, "pool", "pools", "look"],
  [/^decisions$/, "decisions", "decisions", "look"],
  [/^decisions\/(\d+)$/, "decision", "decisions", "look"],
  [/^failures$/, "failures", "failures", "look"],
  [/^money$/, "money", "money", "look"],
  [/^events$/, "events", "events", "look"],
  [/^settings$/, "settings", "settings", "settings"],
  [/^tokens$/, "tokens", "tokens", "tokens"],
];

// `name` is the module below pages/, `section` the line of the navigation that it belongs to, `verb` who may see it.
export function here() {
  const [path, asked = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const query = new URLSearchParams(asked);
  for (const [pattern, name, section, verb] of ROUTES) {
    const found = pattern.exec(path.replace(/\/$/, ""));
    if (found) return { name, section, verb, id: found[1] && decoded(found[1]), query };
  }
  return { name: "missing", section: null, id: path, query };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function link(path, given = {}) {
  const asked = new URLSearchParams(Object.entries(given).flatMap(pairs));
  return `#/${path}${asked.size ? `?${asked}` : ""}`;
}

function pairs([name, value]) {
  const all = [value].flat().filter((each) => each !== null && each !== undefined && each !== "");
  return all.map((each) => [name, each]);
}

export const linkTo = (section, id) => `#/${section}/${encodeURIComponent(id)}`;

export function go(address) {
  if (location.hash === address) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = address;
}
