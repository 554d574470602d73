// The line that does the same in a terminal, for everything that can be done here.

const SHOWN = 8;

export const cancelJobs = (ids) => `herdsman cancel ${list(ids)}`;
export const retryJobs = (ids) => `herdsman retry ${list(ids)}`;
export const drainWorker = (id) => `herdsman workers drain ${quoted(id)}`;
export const revokeLease = (token) => `herdsman leases revoke ${quoted(token)}`;
export const clearGpu = (uuid) => `herdsman gpus clear ${quoted(uuid)}`;
export const drainPool = (id) => `herdsman pool drain ${quoted(id)}`;
export const revokeToken = (id) => `herdsman token revoke ${quoted(id)}`;
export const pauseAll = (reason) => `herdsman pause${reason ? ` --reason ${quoted(reason)}` : ""}`;

// `scope` is all, pool:NAME or type:NAME.
export function resume(scope) {
  const [kind, ...name] = scope.split(":");
  return name.length ? `herdsman resume --${kind} ${quoted(name.join(":"))}` : "herdsman resume";
}

export function createToken({ name, role, agent, days }) {
  const more = [agent && `--agent ${quoted(agent)}`, days && `--days ${days}`].filter(Boolean);
  return ["herdsman token create", quoted(name || "NAME"), `--role ${role}`, ...more].join(" ");
}

export function submitJob({ type, payload, pool, count }) {
  const words = ["herdsman submit", quoted(type || "TYPE")];
  if (payload && payload !== "{}") words.push(`--payload ${quoted(payload)}`);
  if (pool && pool !== "default") words.push(`--pool ${quoted(pool)}`);
  if (count > 1) words.push(`--count ${count}`);
  return words.join(" ");
}

// A job like this one, once more.
export function reproduce(job) {
  const words = ["herdsman submit", quoted(job.type)];
  words.push(`--payload ${quoted(JSON.stringify(job.payload))}`);
  if (job.pool !== "default") words.push(`--pool ${quoted(job.pool)}`);
  if (job.priority) words.push(`--priority ${job.priority}`);
  for (const tag of job.tags) words.push(`--tag ${quoted(tag)}`);
  if (job.agent !== "default") words.push(`--agent ${quoted(job.agent)}`);
  if (job.model) words.push(`--model ${quoted(job.model)}`);
  if (job.gpu_memory_mb) words.push(`--gpu-memory-mb ${job.gpu_memory_mb}`);
  if (job.concurrency_key) words.push(`--key ${quoted(job.concurrency_key)}`);
  if (job.timeout_seconds) words.push(`--timeout ${job.timeout_seconds}`);
  return words.join(" ");
}

function list(ids) {
  const shown = ids.slice(0, SHOWN).map(quoted).join(" ");
  return ids.length > SHOWN ? `${shown}  # and ${ids.length - SHOWN} more` : shown;
}

export function quoted(text) {
  return /^[\w.:@%+=,/-]+$/.test(text) ? text : `'${String(text).replaceAll("'", `'\\''`)}'`;
}
