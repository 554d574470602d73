"""How jobs look: a list of them, and one with all that happened to it."""

import json
from collections.abc import Callable, Mapping, Sequence

from herdsman.cli.listing import Listing
from herdsman.cli.output import age, echo, indented
from herdsman.core.states import JobState
from herdsman.wire.jobs import AttemptOut, EventOut, JobOut, JobsOut

_COLUMNS = (
    *("JOB", "TYPE", "STATE", "WHY", "ATTEMPTS", "AGE"),
    *("+POOL", "+AGENT", "+PRIORITY", "+WORKER", "+PROGRESS", "+RAN", "+TAGS", "+ERROR"),
)


def list_of_jobs(page: JobsOut, *, empty: Callable[[], str]) -> Listing:
    return Listing(
        document=page.model_dump(mode="json"),
        columns=_COLUMNS,
        rows=[_row(each) for each in page.jobs],
        empty="" if page.jobs else empty(),
        next=page.next,
        then=_next(page.jobs),
    )


def _row(one: JobOut) -> tuple[str, ...]:
    # Interruptions are no fault of the job's, and do not use its attempts up.
    tried = f"{one.attempts - one.interruptions}/{one.max_attempts}"
    progress = "" if one.progress is None or one.finished_at else f"{one.progress:.0%}"
    narrow = (one.job_id, one.type, one.status, one.reason, tried, age(one.created_at))
    owners = (one.pool, one.agent, str(one.priority), one.worker_id or "")
    return (*narrow, *owners, progress, _ran(one), " ".join(one.tags), one.last_error or "")


def _ran(one: JobOut) -> str:
    if one.started_at is None:
        return ""
    if one.finished_at is None:
        return age(one.started_at)
    return f"{(one.finished_at - one.started_at).total_seconds():.1f}s"


def _next(found: Sequence[JobOut]) -> str:
    """What a person asks next of such a list: about the first that needs a look."""
    order = (JobState.DEAD_LETTER, JobState.FAILED, JobState.PENDING, JobState.RUNNING)
    for state in order:
        for one in found:
            if one.status == state:
                running = state is JobState.RUNNING
                return f"herdsman {'logs -f' if running else 'why'} {one.job_id}"
    return f"herdsman job {found[0].job_id}" if found else ""


def print_job(
    document: Mapping[str, object], attempts: Sequence[AttemptOut], steps: Sequence[EventOut]
) -> None:
    shown = {key: value for key, value in document.items() if value not in (None, [], (), False)}
    width = max(len(key) for key in shown)
    for key, value in shown.items():
        echo(indented(f"{key:{width}}  {_plain(value)}", width + 2))
    if (saved := document.get("saved_gpu_seconds")) is not None:
        echo(f"result recovered from the service that had made it: {saved:.1f} GPU seconds saved")
    for each in attempts:
        error = f": {each.error}" if each.error else ""
        ended = each.outcome or "not ended yet"
        echo(indented(f"attempt {each.attempt} on {each.worker_id}, {ended}{error}", 4))
    for step in steps:
        echo(
            f"{step.seq:>4}  {step.ts:%Y-%m-%d %H:%M:%S}  {step.to_status:<12} {step.reason:<18} {step.actor}"
        )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
