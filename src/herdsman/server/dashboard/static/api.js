// Calls to the server, with the token, and failures in words.

import { setClock } from "./format.js";
import { secret } from "./session.js";

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const AWAY =
  "The server does not answer. It may have been stopped, or the network is away: herdsman up starts it";
let refused = () => {};

export function onRefused(tell) {
  refused = tell;
}

export async function request(method, path, { body, signal, headers } = {}) {
  const used = secret();
  const response = await send(path, {
    method,
    signal,
    cache: "no-store",
    headers: {
      ...(used === null ? {} : { Authorization: `Bearer ${used}` }),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...headers,
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  setClock(response.headers.get("date"));
  if (!response.ok) throw await failure(response, used);
  return response;
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem(0, AWAY);
  }
}

async function failure(response, used) {
  const told = await response.json().catch(() => ({}));
  const problem = new Problem(response.status, told.detail ?? `The server answered with ${response.status}.`);
  if (response.status === 401 && used === secret()) refused(problem);
  return problem;
}

export async function get(path, signal) {
  return (await request("GET", path, { signal })).json();
}

export async function post(path, body = {}) {
  return (await request("POST", path, { body })).json();
}

export async function del(path) {
  return (await request("DELETE", path)).json();
}

// Null for what is not there, such as the result of a job that has not ended.
export async function find(path, signal) {
  try {
    return await get(path, signal);
  } catch (problem) {
    if (problem.status === 404 || problem.status === 409) return null;
    throw problem;
  }
}

export function query(path, given) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    for (const each of [value].flat()) {
      if (each !== null && each !== undefined && each !== "") asked.append(name, each);
    }
  }
  return asked.size ? `${path}?${asked}` : path;
}

export const part = encodeURIComponent;
