"""`herdsman cancel` and `herdsman retry`: one job, several, or all that a filter finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.jobs import OutputOption, jobs_like, parse
from herdsman.cli.listing import footer
from herdsman.cli.output import DryRun, Output, Yes, ask_first, echo, print_json
from herdsman.cli.short_ids import PAGE, resolve_job, resolve_jobs
from herdsman.client import Client, calls, dashboard_calls
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import JobFilter, PoolId
from herdsman.core.states import JOB, JobState
from herdsman.wire.dashboard import MOST_AT_ONCE, BulkOut
from herdsman.wire.jobs import RetryIn

LIVING = tuple(state for state in JobState if state not in JOB.terminal)

JobNames = Annotated[
    list[str] | None, typer.Argument(metavar="[JOB]...", help="Ids of jobs, or the ends of them.")
]
StatusOption = Annotated[list[JobState] | None, typer.Option("--status", "-s", help="All with this status.")]
TypeOption = Annotated[str | None, typer.Option(help="All of this type.")]
TagOption = Annotated[str | None, typer.Option(help="All with this tag.")]
PoolOption = Annotated[str | None, typer.Option(help="All of this pool.")]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=MOST_AT_ONCE, help="Of a filter, how many at most.")
]


@dataclass(frozen=True, slots=True)
class Verb:
    word: str
    states: tuple[JobState, ...]
    """Of a filter that names none."""


CANCEL, RETRY = Verb("cancel", LIVING), Verb("retry", (JobState.DEAD_LETTER,))


def cancel(
    job_ids: JobNames = None,
    status: StatusOption = None,
    type: TypeOption = None,  # noqa: A002  (the users' word)
    tag: TagOption = None,
    pool: PoolOption = None,
    limit: Limit = MOST_AT_ONCE,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop jobs: a waiting one at once, a running one as soon as its worker has let go."""
    client, wanted = connect(), JobFilter(states=tuple(status or ()), type=type, tag=tag, pool=_pool(pool))
    if job_ids is not None and len(job_ids) == 1 and wanted == JobFilter() and not dry_run:
        _cancel_one(client, resolve_job(client, job_ids[0]), output)
        return
    many = _meant(client, CANCEL, job_ids or (), wanted, limit)
    if _go_on(CANCEL, many, output, dry_run=dry_run, yes=yes):
        _tell(CANCEL, client.send(dashboard_calls.cancel_many(many)), output)


def retry(
    job_ids: JobNames = None,
    payload: Annotated[str | None, typer.Option(help="Of one job: another input, as JSON or @FILE.")] = None,
    status: StatusOption = None,
    type: TypeOption = None,  # noqa: A002
    tag: TagOption = None,
    pool: PoolOption = None,
    limit: Limit = MOST_AT_ONCE,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run jobs that have ended once more."""
    client, wanted = connect(), JobFilter(states=tuple(status or ()), type=type, tag=tag, pool=_pool(pool))
    if job_ids is not None and len(job_ids) == 1 and wanted == JobFilter() and not dry_run:
        _retry_one(client, resolve_job(client, job_ids[0]), payload, output)
        return
    if payload is not None:
        raise InvalidRequest("--payload is for one job: name it alone, and without --dry-run")
    many = _meant(client, RETRY, job_ids or (), wanted, limit)
    if _go_on(RETRY, many, output, dry_run=dry_run, yes=yes):
        _tell(RETRY, client.send(dashboard_calls.retry_many(many)), output)


def _cancel_one(client: Client, job_id: str, output: Output) -> None:
    state = client.send(calls.cancel(job_id)).status
    if output is Output.JSON:
        print_json({"job_id": job_id, "status": state})
    elif state == JobState.CANCELLED:
        echo(f"{job_id} is cancelled")
        footer(f"herdsman retry {job_id}")
    elif state in JOB.terminal:
        echo(f"{job_id} had ended before: {state}")
    else:
        echo(f"{job_id} is {state}; its worker is told to stop")


def _retry_one(client: Client, job_id: str, payload: str | None, output: Output) -> None:
    client.send(
        calls.retry(job_id, RetryIn() if payload is None else RetryIn(payload=parse(payload), edit=True))
    )
    if output is Output.JSON:
        print_json({"job_id": job_id, "status": JobState.PENDING})
    else:
        echo(f"{job_id} is pending again")
        footer(f"herdsman logs -f {job_id}")


def _meant(client: Client, verb: Verb, named: Sequence[str], wanted: JobFilter, limit: int) -> list[str]:
    """By name, or by a filter; never all jobs because nothing was said."""
    if named and wanted != JobFilter():
        raise InvalidRequest(f"herdsman {verb.word} takes ids or a filter, not both")
    if named:
        if len(named) > MOST_AT_ONCE:
            raise InvalidRequest(f"{len(named)} jobs at once are too many: at most {MOST_AT_ONCE}")
        return resolve_jobs(client, named)
    if wanted == JobFilter():
        raise InvalidRequest(
            f"nothing to {verb.word}: name jobs, or a filter such as --type, --tag, --pool or --status"
        )
    return _found(client, wanted if wanted.states else _with_states(wanted, verb), limit)


def _with_states(wanted: JobFilter, verb: Verb) -> JobFilter:
    return JobFilter(states=verb.states, type=wanted.type, tag=wanted.tag, pool=wanted.pool)


def _found(client: Client, wanted: JobFilter, limit: int) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while len(found) < limit:
        page = client.send(jobs_like(wanted, after, min(PAGE, limit - len(found))))
        found += [each.job_id for each in page.jobs]
        if (after := page.next) is None:
            break
    return found


def _go_on(verb: Verb, many: Sequence[str], output: Output, *, dry_run: bool, yes: bool) -> bool:
    if dry_run and output is Output.JSON:
        print_json({"jobs": list(many), "dry_run": True})
    elif dry_run or not many:
        for job_id in many:
            echo(job_id)
        echo(f"would {verb.word} {_jobs(len(many))}; nothing was done" if many else "no such jobs")
    else:
        ask_first(f"{verb.word.capitalize()} {_jobs(len(many))}?", yes=yes)
        return True
    return False


def _tell(verb: Verb, done: BulkOut, output: Output) -> None:
    """Ends with 1 when one of them was refused."""
    if output is Output.JSON:
        print_json(done.model_dump(mode="json"))
    else:
        for each in done.jobs:
            echo(each.refused or f"{each.job_id} is {each.status}")
        echo(f"{done.changed} of {_jobs(len(done.jobs))} changed by {verb.word}")
    if any(each.refused for each in done.jobs):
        raise typer.Exit(1)


def _pool(named: str | None) -> PoolId | None:
    return None if named is None else PoolId(named)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
