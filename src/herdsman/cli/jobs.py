"""Commands about jobs: submit, list, look at one. `ending` cancels them and runs them again."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from herdsman.cli.connection import connect
from herdsman.cli.job_pages import list_of_jobs, print_job
from herdsman.cli.listing import LayoutOption, Watch, footer, show
from herdsman.cli.output import Layout, Output, did_you_mean, echo, print_json
from herdsman.cli.short_ids import PAGE, resolve_job
from herdsman.client import Client, calls
from herdsman.client.call import Call
from herdsman.core.body import decode
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import DEFAULT_POOL, JobFilter, PoolId
from herdsman.core.states import JobState
from herdsman.wire.jobs import JobIn, JobsOut, SubmittedOut

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or the end of it.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]
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
