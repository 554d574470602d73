"""A handler that keeps a real GPU busy for a while, loaded by a real worker."""

from bench.gpu_work import spin
from herdsman import JobContext, handler

SPIN = "spin"


@handler(SPIN)
def on_gpu(job: JobContext) -> list[float]:
    return list(spin(float(job.payload["ms"])))
