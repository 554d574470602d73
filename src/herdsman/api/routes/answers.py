"""What several routes answer with."""

from fastapi.responses import JSONResponse

from herdsman.core.access import Caller
from herdsman.core.errors import NotFound
from herdsman.core.model import Job, JobId
from herdsman.wire.problems import MEDIA_TYPE, problem


def refused(status: int, code: str, detail: str) -> JSONResponse:
    """For what is no error of ours: the caller came at the wrong time, or to the wrong replica."""
    return JSONResponse(problem(status, code, detail).model_dump(), status, media_type=MEDIA_TYPE)


def visible(job: Job, who: Caller) -> Job:
    """To a submitter, the jobs of others do not exist (X2)."""
    if not who.sees(job.agent):
        raise NotFound(f"there is no job {job.job_id!r}")
    return job


def location(job_id: JobId) -> dict[str, str]:
    return {"Location": f"/jobs/{job_id}"}
