// What happens, as it happens. EventSource cannot send a token, so the stream is read by hand.

import { request } from "./api.js";

const LONGEST_WAIT = 15_000;
const SILENCE = 40_000; // the server says something every 15 seconds

// Reads events until `stop` is called; comes back by itself, from where it was.
export function follow({ path = "/events", since = null, onEvent, onState }) {
  const control = new AbortController();
  const place = { id: since, fails: 0 };
  void loop(path, place, control, onEvent, onState);
  return { stop: () => control.abort(), place };
}

async function loop(path, place, control, onEvent, onState) {
  while (!control.signal.aborted) {
    try {
      await listen(path, place, control.signal, onEvent, onState);
    } catch (problem) {
      if (control.signal.aborted) return;
      if (problem.status === 401 || problem.status === 403) return onState("off");
      place.fails += 1;
    }
    if (control.signal.aborted) return;
    onState("away");
    await pause(waitFor(place.fails), control.signal);
  }
}

function waitFor(fails) {
  return Math.min(LONGEST_WAIT, 500 * 2 ** Math.min(fails, 6)) * (0.75 + Math.random() / 2);
}

function pause(length, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, length);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}

async function listen(path, place, signal, onEvent, onState) {
  const alive = new AbortController();
  const end = () => alive.abort();
  signal.addEventListener("abort", end, { once: true });
  const headers = { Accept: "text/event-stream" };
  if (place.id !== null) headers["Last-Event-ID"] = String(place.id);
  try {
    const response = await request("GET", path, { signal: alive.signal, headers });
    place.fails = 0;
    onState("live");
    await read(response.body.getReader(), end, (block) => take(block, place, onEvent));
  } finally {
    signal.removeEventListener("abort", end);
    end();
  }
}

async function read(reader, end, onBlock) {
  const decoder = new TextDecoder();
  let text = "";
  let timer = setTimeout(end, SILENCE);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(end, SILENCE);
      const blocks = (text + decoder.decode(value, { stream: true })).split("\n\n");
      text = blocks.pop();
      blocks.forEach(onBlock);
    }
  } finally {
    clearTimeout(timer);
  }
}

function take(block, place, onEvent) {
  let data = null;
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) place.id = Number(line.slice(4));
    else if (line.startsWith("data: ")) data = line.slice(6);
  }
  if (data !== null) onEvent(JSON.parse(data));
}
