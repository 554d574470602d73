"""Commands about jobs: submit, list, look at one, cancel, run again."""

import json
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from herdsman.cli.job_pages import print_job, print_jobs
from herdsman.cli.opening import door_here
from herdsman.cli.shown import Output, print_json
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import DEFAULT_POOL, JobFilter
from herdsman.core.states import JOB, JobState
from herdsman.wire.jobs import JobIn, RetryIn, SubmittedOut

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]
Type = Annotated[str, typer.Argument(help="What kind of job it is.")]
Payload = Annotated[str, typer.Option(help="The job's input, as JSON.")]
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
    payload: Payload = "{}",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many of it.")] = 1,
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
    if count > 1 and job_id is not None:
        raise InvalidRequest("--job-id names one job: leave out --count")
    new = job_in(
        type=type,
        payload=parse(payload),
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
    done = door_here().submit([new] * count)
    if output is Output.JSON:
        print_json({"jobs": [each.model_dump(mode="json", exclude_none=True) for each in done]})
        return
    for submitted in done:
        typer.echo(f"{submitted.job_id}{_how(submitted)}")


def _how(done: SubmittedOut) -> str:
    if not done.created:
        return " (was submitted before)"
    if done.run_at is not None:
        return f" (put off until {done.run_at:%H:%M:%S} UTC: {done.admission})"
    return f" (sent to pool {done.pool}: {done.admission})" if done.pool is not None else ""


def jobs(
    state: Annotated[
        list[JobState] | None, typer.Option("--state", "-s", help="Only jobs in this state.")
    ] = None,
    type: Annotated[str | None, typer.Option(help="Only jobs of this type.")] = None,  # noqa: A002
    tag: Annotated[str | None, typer.Option(help="Only jobs with this tag.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many at most.")] = 20,
    after: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List jobs, newest first."""
    wanted = JobFilter(states=tuple(state or ()), type=type, tag=tag)
    page = door_here().page(wanted, after, limit)
    if output is Output.JSON:
        print_json(page.model_dump(mode="json"))
        return
    if not page.jobs:
        typer.echo(
            "no such jobs"
            if wanted != JobFilter() or after
            else "no jobs; submit one with: herdsman submit demo"
        )
        return
    print_jobs(page.jobs)
    if page.next:
        typer.echo(f"more: the same command with --after {page.next}")


def job(job_id: JobName, output: OutputOption = Output.TABLE) -> None:
    """Show one job: where it stands, its attempts, and every step it took."""
    door = door_here()
    found, result = door.look(job_id), door.result(job_id)
    document = found.model_dump(mode="json") | {"result": None if result is None else result.result}
    attempts, steps = door.attempts(job_id).attempts, door.history(job_id).events
    if output is Output.JSON:
        lists = {"attempt_history": attempts, "history": steps}
        print_json(
            document | {name: [each.model_dump(mode="json") for each in many] for name, many in lists.items()}
        )
    else:
        print_job(document, attempts, steps)


def cancel(job_id: JobName, output: OutputOption = Output.TABLE) -> None:
    """Stop a job: a waiting one at once, a running one as soon as its worker has let go."""
    state = door_here().cancel(job_id)
    if output is Output.JSON:
        print_json({"job_id": job_id, "status": state})
    elif state == JobState.CANCELLED:
        typer.echo(f"{job_id} is cancelled")
    elif state in JOB.terminal:
        typer.echo(f"{job_id} had ended before: {state}")
    else:
        typer.echo(f"{job_id} is {state}; its worker is told to stop")


def retry(
    job_id: JobName,
    payload: Annotated[str | None, typer.Option(help="Another input, as JSON.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a job that has ended once more."""
    door_here().retry(job_id, RetryIn() if payload is None else RetryIn(payload=parse(payload), edit=True))
    if output is Output.JSON:
        print_json({"job_id": job_id, "status": JobState.PENDING})
    else:
        typer.echo(f"{job_id} is pending again")


def job_in(**asked: Any) -> JobIn:
    """What the server would refuse is refused here, in the words of the option."""
    try:
        return JobIn(**asked)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = str(first["loc"][0]).removesuffix("_seconds").replace("_", "-")
        raise InvalidRequest(f"--{field} is {asked[str(first['loc'][0])]!r}: {first['msg']}") from error


def parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"--payload is not JSON: {error}") from error
