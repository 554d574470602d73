"""A handler that tells what it sees of the machine."""

from pathlib import Path

from herdsman import JobContext, handler


@handler("look_around")
def look_around(job: JobContext) -> object:
    (job.workspace / "mine").write_text("written")
    pids = [each for each in Path("/proc").iterdir() if each.name.isdecimal()]
    places = {place: sorted(map(str, Path(place).iterdir())) for place in job.payload["places"]}
    files = {place: Path(place).read_bytes().decode() for place in job.payload["files"]}
    return {"processes": len(pids), "places": places, "files": files}
