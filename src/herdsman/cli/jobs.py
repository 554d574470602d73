"""Commands about jobs: submit, list, look at one, cancel, and run again."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from herdsman.cli.connection import connect
from herdsman.cli.listing import LayoutOption, Listing, Watch, footer, show
from herdsman.cli.output import (
    DryRun,
    Layout,
    Output,
    OutputOption,
    Yes,
    age,
    ask_first,
    counted,
    did_you_mean,
    echo,
    indented,
    print_json,
)
from herdsman.cli.short_ids import PAGE, resolve_job, resolve_jobs
from herdsman.client import Client, calls
from herdsman.client.call import Call
from herdsman.errors import InvalidRequest
from herdsman.ids import DEFAULT_POOL, PoolId
from herdsman.jobs.model import JobFilter
from herdsman.jobs.wire import (
    MOST_IN_BULK,
    AttemptOut,
    BulkOut,
    EventOut,
    JobIn,
    JobOut,
    JobsOut,
    RetryIn,
    SubmittedOut,
)
from herdsman.json_text import decode
from herdsman.states import JOB, JobState

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or the end of it.")]
Type = Annotated[str, typer.Argument(help="What kind of job it is.")]
Payload = Annotated[str, typer.Option(help="The job's input, as JSON; @FILE reads it there, @- from here.")]
PayloadOfMany = Annotated[
    str,
    typer.Option(
        help="The job's input, as JSON; @FILE reads it there, @- from here. With --count, {n} is the number of each."
    ),
]
JobIdOption = Annotated[str | None, typer.Option(help="Its id; sending it twice is one job.")]
PoolOption = Annotated[str, typer.Option(help="The pool whose workers may run it.")]
Priority = Annotated[int, typer.Option(help="-100 to 100; higher goes first.")]
Tag = Annotated[list[str] | None, typer.Option(help="A tag to find it by; may be repeated.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds that it may run.")]
Attempts = Annotated[int | None, typer.Option(help="Attempts it has.")]
Agent = Annotated[str | None, typer.Option(help="For whom it runs.")]
Model = Annotated[
    str | None, typer.Option(help="What it runs with; a worker that has it loaded is preferred.")
]
Memory = Annotated[int | None, typer.Option("--gpu-memory-mb", help="GPU memory it needs; else all of it.")]
Key = Annotated[str | None, typer.Option("--key", help="Only so many jobs of one key run at a time.")]
AllowCpu = Annotated[bool, typer.Option("--allow-cpu", help="Where GPUs are short, run without one.")]
MaxDefer = Annotated[float | None, typer.Option(help="Seconds that it may be put off before it is refused.")]


def submit(
    type: Type,  # noqa: A002  (the users' word)
    payload: PayloadOfMany = "{}",
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, max=1000, help="How many of it; 1 if left out.")
    ] = None,
    job_id: JobIdOption = None,
    pool: PoolOption = DEFAULT_POOL,
    priority: Priority = 0,
    tag: Tag = None,
    delay: Annotated[float | None, typer.Option(help="Seconds to wait before it may run.")] = None,
    timeout: Timeout = None,
    max_attempts: Attempts = None,
    agent: Agent = None,
    model: Model = None,
    gpu_memory_mb: Memory = None,
    key: Key = None,
    allow_cpu: AllowCpu = False,
    max_defer: MaxDefer = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a job, or several of the same kind."""
    if (count or 1) > 1 and job_id is not None:
        raise InvalidRequest("--job-id names one job: leave out --count")
    payloads = [parse(payload)] if count is None else numbered(payload, count)
    new = job_in(
        type=type,
        payload=payloads[0],
        job_id=job_id,
        pool=pool,
        priority=priority,
        tags=tuple(tag or ()),
        delay_seconds=delay,
        timeout_seconds=timeout,
        max_attempts=max_attempts,
        agent=agent,
        model=model,
        gpu_memory_mb=gpu_memory_mb,
        concurrency_key=key,
        allow_cpu=allow_cpu,
        max_defer_seconds=max_defer,
    )
    client = connect()
    if count is None or count == 1:
        done: Sequence[SubmittedOut] = [client.send(calls.submit(new))]
    else:
        many = [new.model_copy(update={"payload": each}) for each in payloads]
        done = client.send(calls.submit_many(many)).jobs
    if output is Output.JSON:
        print_json({"jobs": [each.model_dump(mode="json", exclude_none=True) for each in done]})
        return
    for submitted in done:
        echo(f"{submitted.job_id}{_how(submitted)}")
    _hint(client, new, done)
    footer(f"herdsman logs -f {done[0].job_id}" if len(done) == 1 else "herdsman jobs --watch")


def _hint(client: Client, new: JobIn, done: Sequence[SubmittedOut]) -> None:
    """Any type and any pool may be meant; a person who is the first to use one may have mistyped it."""
    if not sys.stderr.isatty():
        return
    made = {each.job_id for each in done}
    older = [each for each in client.send(calls.jobs(limit=PAGE)).jobs if each.job_id not in made]
    seen = {
        "type": {"demo", *(each.type for each in older)},
        "pool": {DEFAULT_POOL, *(each.pool for each in older)},
    }
    for what, typed in (("type", new.type), ("pool", new.pool)):
        if typed not in seen[what] and (meant := did_you_mean(typed, seen[what])):
            echo(f"note: this is the first job of the {what} {typed!r}{meant}", err=True)


def numbered(payload: str, count: int) -> list[object]:
    """The payload of each, with its number in the place of `{n}`, from 1 on."""
    text = read_payload(payload)
    return [_decoded(text.replace("{n}", str(number))) for number in range(1, count + 1)]


def _how(done: SubmittedOut) -> str:
    if not done.created:
        return " (was submitted before)"
    if done.run_at is not None:
        return f" (put off until {done.run_at:%H:%M:%S} UTC: {done.admission})"
    return f" (sent to pool {done.pool}: {done.admission})" if done.pool is not None else ""


def jobs(
    status: Annotated[
        list[JobState] | None, typer.Option("--status", "-s", help="Only jobs with this status.")
    ] = None,
    type: Annotated[str | None, typer.Option(help="Only jobs of this type.")] = None,  # noqa: A002
    tag: Annotated[str | None, typer.Option(help="Only jobs with this tag.")] = None,
    pool: Annotated[str | None, typer.Option(help="Only jobs of this pool.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many at most.")] = 20,
    after: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List jobs, newest first."""
    named = None if pool is None else PoolId(pool)
    wanted, client = JobFilter(states=tuple(status or ()), type=type, tag=tag, pool=named), connect()

    def look() -> JobsOut:
        return client.send(jobs_like(wanted, after, limit))

    show(lambda: list_of_jobs(look(), empty=lambda: _nothing(client, wanted, after)), output, watch=watch)


def jobs_like(wanted: JobFilter, after: str | None, limit: int) -> Call[JobsOut]:
    return calls.jobs(
        statuses=wanted.states,
        kind=wanted.type,
        pool=wanted.pool,
        tag=wanted.tag,
        after=after,
        limit=limit,
    )


def _nothing(client: Client, wanted: JobFilter, after: str | None) -> str:
    if wanted == JobFilter() and after is None:
        return "no jobs; submit one with: herdsman submit demo"
    recent = client.send(calls.jobs(limit=PAGE)).jobs if wanted.type or wanted.pool else ()
    meant = did_you_mean(wanted.type, {job.type for job in recent}) if wanted.type else ""
    return f"no such jobs{meant or (did_you_mean(wanted.pool, {job.pool for job in recent}) if wanted.pool else '')}"


def job(job_id: JobName, output: OutputOption = Output.TABLE) -> None:
    """Show one job: where it stands, its attempts, and every step it took."""
    client = connect()
    job_id = resolve_job(client, job_id)
    found, result = client.send(calls.job(job_id)), client.send(calls.result(job_id))
    document = found.model_dump(mode="json") | {"result": None if result is None else result.result}
    attempts, steps = (
        client.send(calls.attempts(job_id)).attempts,
        client.send(calls.history(job_id, None)).events,
    )
    if output is Output.JSON:
        lists = {"attempt_history": attempts, "history": steps}
        print_json(
            document | {name: [each.model_dump(mode="json") for each in many] for name, many in lists.items()}
        )
    else:
        print_job(document, attempts, steps)
        footer(f"herdsman why {job_id}")


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
        echo(
            indented(
                f"{key:{width}}  {(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))}",
                width + 2,
            )
        )
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


def job_in(**asked: Any) -> JobIn:
    """What the server would refuse is refused here, in the words of the option."""
    try:
        return JobIn(**asked)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = str(first["loc"][0]).removesuffix("_seconds").replace("_", "-")
        raise InvalidRequest(f"--{field} is {asked[str(first['loc'][0])]!r}: {first['msg']}") from error


def read_payload(given: str) -> str:
    """What was typed, or what stands in the file that was named: no JSON begins with an @."""
    if not given.startswith("@"):
        return given
    name = given[1:]
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, ValueError) as error:  # a directory, no such file, no text
        raise InvalidRequest(f"--payload {given} cannot be read: {error}; name a file of JSON") from error


def parse(given: str) -> object:
    return _decoded(read_payload(given))


def _decoded(text: str) -> object:
    return decode(text.encode(errors="surrogateescape"), what="--payload")


LIVING = tuple(state for state in JobState if state not in JOB.terminal)

JobNames = Annotated[
    list[str] | None, typer.Argument(metavar="[JOB]...", help="Ids of jobs, or the ends of them.")
]
StatusOption = Annotated[list[JobState] | None, typer.Option("--status", "-s", help="All with this status.")]
TypeOption = Annotated[str | None, typer.Option(help="All of this type.")]
TagOption = Annotated[str | None, typer.Option(help="All with this tag.")]
PoolFilter = Annotated[str | None, typer.Option(help="All of this pool.")]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=MOST_IN_BULK, help="Of a filter, how many at most.")
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
    pool: PoolFilter = None,
    limit: Limit = MOST_IN_BULK,
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
        _tell(CANCEL, client.send(calls.cancel_many(many)), output)


def retry(
    job_ids: JobNames = None,
    payload: Annotated[str | None, typer.Option(help="Of one job: another input, as JSON or @FILE.")] = None,
    status: StatusOption = None,
    type: TypeOption = None,  # noqa: A002
    tag: TagOption = None,
    pool: PoolFilter = None,
    limit: Limit = MOST_IN_BULK,
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
        _tell(RETRY, client.send(calls.retry_many(many)), output)


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
        if len(named) > MOST_IN_BULK:
            raise InvalidRequest(f"{len(named)} jobs at once are too many: at most {MOST_IN_BULK}")
        return resolve_jobs(client, named)
    if wanted == JobFilter():
        raise InvalidRequest(
            f"nothing to {verb.word}: name jobs, or a filter such as --type, --tag, --pool or --status"
        )
    return _found(
        client,
        wanted
        if wanted.states
        else JobFilter(states=verb.states, type=wanted.type, tag=wanted.tag, pool=wanted.pool),
        limit,
    )


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
        echo(f"would {verb.word} {counted(len(many), 'job')}; nothing was done" if many else "no such jobs")
    else:
        ask_first(f"{verb.word.capitalize()} {counted(len(many), 'job')}?", yes=yes)
        return True
    return False


def _tell(verb: Verb, done: BulkOut, output: Output) -> None:
    """Ends with 1 when one of them was refused."""
    if output is Output.JSON:
        print_json(done.model_dump(mode="json"))
    else:
        for each in done.jobs:
            echo(each.refused or f"{each.job_id} is {each.status}")
        echo(f"{done.changed} of {counted(len(done.jobs), 'job')} changed by {verb.word}")
    if any(each.refused for each in done.jobs):
        raise typer.Exit(1)


def _pool(named: str | None) -> PoolId | None:
    return None if named is None else PoolId(named)
