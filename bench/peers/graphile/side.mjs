// Graphile Worker as its own page on performance tunes it: a local queue, and completions in batches.
import fs from "node:fs";
import { makeWorkerUtils, run } from "graphile-worker";

const TOGETHER = 500;
const [role, connectionString, marks, count] = process.argv.slice(2);
process.stdin.resume().on("end", () => process.exit(1)); // ends with whoever measures it

if (role === "fill") {
  const utils = await makeWorkerUtils({ connectionString });
  await utils.migrate();
  await utils.withPgClient((client) =>
    client.query("SELECT graphile_worker.add_job('noop', '{}') FROM generate_series(1, $1::int)", [count]),
  );
  await utils.withPgClient((client) => client.query("VACUUM ANALYZE"));
  await utils.release();
  process.exit(0);
}

const file = fs.openSync(marks, "a");
const mark = Buffer.alloc(8);
await run({
  taskList: {
    noop: async () => {
      mark.writeBigUInt64LE(process.hrtime.bigint());
      fs.writeSync(file, mark);
    },
  },
  preset: {
    worker: {
      connectionString,
      concurrentJobs: 10,
      localQueue: { size: TOGETHER, refetchDelay: { durationMs: 10, threshold: 0 } },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  },
  logger: undefined,
});
