"""`herdsman submit`, `jobs`, `job`, `cancel` and `retry`."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from herdsman.cli import output as out
from herdsman.cli.connect import PAGE, connect, resolve_job, resolve_jobs
from herdsman.cli.listing import After, LayoutOption, Listing, Watch, footer, show
from herdsman.client import Client, calls
from herdsman.client.call import Call
from herdsman.errors import InvalidRequest
from herdsman.ids import DEFAULT_POOL
from herdsman.jobs import wire
from herdsman.json_text import decode
from herdsman.states import JOB, JobStatus

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or the end of it.")]
Type = Annotated[str, typer.Argument(help="The type of the job; its handler runs it.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What `submit` and `run` take, under the names of the API."""

    job_id: Annotated[str | None, typer.Option(help="Its id; submitting it twice makes one job.")] = None
    pool: Annotated[str, typer.Option(help="The pool whose workers may run it.")] = DEFAULT_POOL
    priority: Annotated[int, typer.Option(help="-100 to 100; higher runs first.")] = 0
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A tag to find it by; may be repeated.")] = None
    timeout_seconds: Annotated[float | None, typer.Option("--timeout", help="Seconds that it may run.")] = None
    max_attempts: Annotated[int | None, typer.Option(help="Attempts at most.")] = None
    agent: Annotated[str | None, typer.Option(help="The agent that it runs for.")] = None
    model: Annotated[
        str | None, typer.Option(help="The model that it uses; workers that have it loaded are preferred.")
    ] = None
    gpu_memory_mb: Annotated[int | None, typer.Option(help="GPU memory that it needs; a whole GPU by default.")] = None
    concurrency_key: Annotated[
        str | None, typer.Option("--key", help="Concurrency key: limits how many of its jobs run at a time.")
    ] = None
    allow_cpu: Annotated[bool, typer.Option("--allow-cpu", help="Run without a GPU if none is free.")] = False
    max_defer_seconds: Annotated[
        float | None, typer.Option("--max-defer", help="Seconds that it may be deferred before it is rejected.")
    ] = None

    def job(self, **more: object) -> wire.JobIn:
        """Rejects here what the server would reject, naming the option."""
        given = {**asdict(self), "tags": tuple(self.tags or ()), **more}
        try:
            return wire.JobIn.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = str(first["loc"][0])
            option = name.removesuffix("_seconds").replace("_", "-")
            raise InvalidRequest(f"--{option} is {given[name]!r}: {first['msg']}") from error


def submit(
    type: Type,  # noqa: A002  (the users' word)
    options: JobOptions,
    payload: Annotated[
        str,
        typer.Option(
            help="The input as JSON; @FILE reads a file, @- standard input. With --count, {n} is the number of each job."
        ),
    ] = "{}",
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, max=1000, help="How many; 1 by default.")] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds to wait before it may run.")] = None,
    output: out.OutputOption = out.Output.TABLE,
) -> None:
    if (count or 1) > 1 and options.job_id is not None:
        raise InvalidRequest("--job-id is for a single job: leave out --count")
    payloads = [parse(payload)] if count is None else numbered(payload, count)
    new = options.job(type=type, payload=payloads[0], delay_seconds=delay)
    client = connect()
    if len(payloads) == 1:
        done: Sequence[wire.SubmittedOut] = [client.send(calls.submit(new))]
    else:
        many = [new.model_copy(update={"payload": each}) for each in payloads]
        done = client.send(calls.submit_many(many)).jobs
    if output is out.Output.JSON:
        out.print_json({"jobs": [each.model_dump(mode="json", exclude_none=True) for each in done]})
        return
    for each in done:
        how = "" if each.pool is None else f" (sent to pool {each.pool}: {each.admission})"
        if each.run_at is not None:
            how = f" (deferred until {each.run_at:%H:%M:%S} UTC: {each.admission})"
        out.echo(f"{each.job_id}{how if each.created else ' (already submitted)'}")
    _hint(client, new, done)
    footer(f"herdsman logs -f {done[0].job_id}" if len(done) == 1 else "herdsman jobs --watch")


def _hint(client: Client, new: wire.JobIn, done: Sequence[wire.SubmittedOut]) -> None:
    """Types and pools are free names; the first use of one may be a typing error."""
    if not sys.stderr.isatty():
        return
    made = {each.job_id for each in done}
    older = [each for each in client.send(calls.jobs(limit=PAGE)).jobs if each.job_id not in made]
    types, pools = {"demo", *(each.type for each in older)}, {DEFAULT_POOL, *(each.pool for each in older)}
    for what, typed, known in (("type", new.type, types), ("pool", new.pool, pools)):
        if typed not in known and (meant := out.did_you_mean(typed, known)):
            out.echo(f"note: this is the first job of the {what} {typed!r}{meant}", err=True)


def numbered(payload: str, count: int) -> list[object]:
    """The payload of each job, with `{n}` replaced by its number, from 1."""
    text = read_payload(payload)
    return [_decoded(text.replace("{n}", str(number))) for number in range(1, count + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    status: Annotated[list[JobStatus] | None, typer.Option("--status", "-s", help="Only jobs with this status.")] = None
    type: Annotated[str | None, typer.Option(help="Only jobs of this type.")] = None
    tag: Annotated[str | None, typer.Option(help="Only jobs with this tag.")] = None
    pool: Annotated[str | None, typer.Option(help="Only jobs of this pool.")] = None

    @property
    def given(self) -> bool:
        return bool(self.status) or any(each is not None for each in (self.type, self.tag, self.pool))

    def page(self, after: str | None, limit: int, states: Sequence[JobStatus] = ()) -> Call[wire.JobsOut]:
        """`states` are those of a filter that names none."""
        kind, pool, tag = self.type, self.pool, self.tag
        return calls.jobs(statuses=self.status or states, kind=kind, pool=pool, tag=tag, after=after, limit=limit)


def jobs(
    wanted: Filter,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many at most.")] = 20,
    after: After = None,
    watch: Watch = False,
    output: LayoutOption = out.Layout.TABLE,
) -> None:
    client = connect()

    def read() -> Listing:
        page = client.send(wanted.page(after, limit))
        return Listing(
            document=page,
            columns=_COLUMNS,
            rows=[_row(each) for each in page.jobs],
            empty="" if page.jobs else _nothing(client, wanted, after),
            next=page.next,
            then=_next(page.jobs),
        )

    show(read, output, watch=watch)


def _nothing(client: Client, wanted: Filter, after: str | None) -> str:
    if not wanted.given and after is None:
        return "no jobs; submit one with: herdsman submit demo"
    recent = client.send(calls.jobs(limit=PAGE)).jobs if wanted.type or wanted.pool else ()
    meant = out.did_you_mean(wanted.type, {job.type for job in recent}) if wanted.type else ""
    if wanted.pool and not meant:
        meant = out.did_you_mean(wanted.pool, {job.pool for job in recent})
    return f"no matching jobs{meant}"


def job(job_id: JobName, output: out.OutputOption = out.Output.TABLE) -> None:
    client = connect()
    job_id = resolve_job(client, job_id)
    found, result = client.send(calls.job(job_id)), client.send(calls.result(job_id))
    document = found.model_dump(mode="json") | {"result": None if result is None else result.result}
    attempts = client.send(calls.attempts(job_id)).attempts
    steps = client.send(calls.history(job_id, None)).events
    if not out.printed_json(output, document | {"attempt_history": attempts, "history": steps}):
        _print_job(document, attempts, steps)
        footer(f"herdsman why {job_id}")


NOT_ENDED = tuple(status for status in JobStatus if status not in JOB.terminal)
_COLUMNS = (
    *("JOB", "TYPE", "STATUS", "REASON", "ATTEMPTS", "AGE"),
    *("+POOL", "+AGENT", "+PRIORITY", "+WORKER", "+PROGRESS", "+RAN", "+TAGS", "+ERROR"),
)


def _row(one: wire.JobOut) -> tuple[str, ...]:
    # Interruptions are not the job's fault, and use none of its attempts.
    tried = f"{one.attempts - one.interruptions}/{one.max_attempts}"
    progress = "" if one.progress is None or one.finished_at else f"{one.progress:.0%}"
    ran = "" if one.started_at is None else out.age(one.started_at)
    if one.started_at is not None and one.finished_at is not None:
        ran = f"{(one.finished_at - one.started_at).total_seconds():.1f}s"
    narrow = (one.job_id, one.type, one.status, one.reason, tried, out.age(one.created_at))
    owners = (one.pool, one.agent, str(one.priority), one.worker_id or "")
    return (*narrow, *owners, progress, ran, " ".join(one.tags), one.last_error or "")


def _next(found: Sequence[wire.JobOut]) -> str:
    """The command that a person is likely to need next: about the first job that needs attention."""
    for status in (JobStatus.DEAD_LETTER, JobStatus.FAILED, JobStatus.PENDING, JobStatus.RUNNING):
        for one in found:
            if one.status == status:
                return f"herdsman {'logs -f' if status is JobStatus.RUNNING else 'why'} {one.job_id}"
    return f"herdsman job {found[0].job_id}" if found else ""


def _print_job(
    document: Mapping[str, object], attempts: Sequence[wire.AttemptOut], steps: Sequence[wire.EventOut]
) -> None:
    shown = {key: value for key, value in document.items() if value not in (None, [], (), False)}
    width = max(len(key) for key in shown)
    for key, value in shown.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        out.echo(out.indented(f"{key:{width}}  {text}", width + 2))
    if (saved := document.get("saved_gpu_seconds")) is not None:
        out.echo(f"result recovered from the service, which had finished it: {saved:.1f} GPU seconds saved")
    for each in attempts:
        error = f": {each.error}" if each.error else ""
        ended = each.outcome or "running"
        out.echo(out.indented(f"attempt {each.attempt} on {each.worker_id}, {ended}{error}", 4))
    for step in steps:
        out.echo(f"{step.seq:>4}  {step.ts:%Y-%m-%d %H:%M:%S}  {step.to_status:<12} {step.reason:<18} {step.actor}")


def read_payload(given: str) -> str:
    """What was typed, or the content of the file that was named: no JSON begins with an @."""
    if not given.startswith("@"):
        return given
    name = given[1:]
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, ValueError) as error:  # a directory, no such file, no text
        raise InvalidRequest(f"--payload {given} cannot be read: {error}; name a JSON file") from error


def parse(given: str) -> object:
    return _decoded(read_payload(given))


def _decoded(text: str) -> object:
    return decode(text.encode(errors="surrogateescape"), what="--payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(Filter):
    """What `cancel` and `retry` take: ids, or a filter."""

    job_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB]...", help="Ids of jobs, or the ends of them.")
    ] = None
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=wire.MOST_IN_BULK, help="With a filter: how many at most.")
    ] = wire.MOST_IN_BULK
    dry_run: out.DryRun = False
    yes: out.Yes = False
    output: out.OutputOption = out.Output.TABLE

    @property
    def single(self) -> bool:
        """One job, named by its id: it is changed at once, and without a question."""
        return len(self.job_ids or ()) == 1 and not self.given and not self.dry_run


def cancel(chosen: Selection) -> None:
    client = connect()
    if not chosen.single:
        _change(client, chosen, "cancel", NOT_ENDED, calls.cancel_many)
        return
    (job_id,) = resolve_jobs(client, chosen.job_ids or ())
    status = client.send(calls.cancel(job_id)).status
    if not out.printed_json(chosen.output, {"job_id": job_id, "status": status}):
        out.echo(cancelled(job_id, status))
        footer(f"herdsman retry {job_id}" if status == JobStatus.CANCELLED else "")


def cancelled(job_id: str, status: str) -> str:
    """What became of a job after it was to be cancelled."""
    if status == JobStatus.CANCELLED:
        return f"{job_id} is cancelled"
    if status in JOB.terminal:
        return f"{job_id} had already ended: {status}"
    return f"{job_id} is {status}; its worker has been asked to stop it"


def retry(
    chosen: Selection,
    payload: Annotated[str | None, typer.Option(help="For a single job: another input, as JSON or @FILE.")] = None,
) -> None:
    client = connect()
    if not chosen.single:
        if payload is not None:
            raise InvalidRequest("--payload is for a single job: give one id, no filter and no --dry-run")
        _change(client, chosen, "retry", (JobStatus.DEAD_LETTER,), calls.retry_many)
        return
    (job_id,) = resolve_jobs(client, chosen.job_ids or ())
    client.send(
        calls.retry(job_id, wire.RetryIn() if payload is None else wire.RetryIn(payload=parse(payload), edit=True))
    )
    if not out.printed_json(chosen.output, {"job_id": job_id, "status": JobStatus.PENDING}):
        out.echo(f"{job_id} is pending again")
        footer(f"herdsman logs -f {job_id}")


def _change(
    client: Client,
    chosen: Selection,
    verb: str,
    states: tuple[JobStatus, ...],
    call: Callable[[Sequence[str]], Call[wire.BulkOut]],
) -> None:
    """Changes many jobs after a question; `states` are those of a filter that names none. Exits with 1 when one of
    them was refused."""
    many = _selected(client, chosen, verb, states)
    if chosen.dry_run and out.printed_json(chosen.output, {"jobs": many, "dry_run": True}):
        return
    if chosen.dry_run or not many:
        for job_id in many:
            out.echo(job_id)
        out.echo(f"would {verb} {out.counted(len(many), 'job')}; nothing was done" if many else "no matching jobs")
        return
    out.ask_first(f"{verb.capitalize()} {out.counted(len(many), 'job')}?", yes=chosen.yes)
    done = client.send(call(many))
    if not out.printed_json(chosen.output, done):
        for each in done.jobs:
            out.echo(each.refused or f"{each.job_id} is {each.status}")
        out.echo(f"{done.changed} of {out.counted(len(done.jobs), 'job')} changed by {verb}")
    if any(each.refused for each in done.jobs):
        raise typer.Exit(1)


def _selected(client: Client, chosen: Selection, verb: str, states: tuple[JobStatus, ...]) -> list[str]:
    """By id, or by a filter; never all jobs because nothing was given."""
    named = chosen.job_ids or ()
    if named and chosen.given:
        raise InvalidRequest(f"herdsman {verb} takes ids or a filter, not both")
    if len(named) > wire.MOST_IN_BULK:
        raise InvalidRequest(f"{len(named)} jobs are too many at once: at most {wire.MOST_IN_BULK}")
    if named:
        return resolve_jobs(client, named)
    if not chosen.given:
        raise InvalidRequest(f"nothing to {verb}: give ids, or a filter such as --type, --tag, --pool or --status")
    found: list[str] = []
    after: str | None = None
    while len(found) < chosen.limit:
        page = client.send(chosen.page(after, min(PAGE, chosen.limit - len(found)), states))
        found += [each.job_id for each in page.jobs]
        if (after := page.next) is None:
            break
    return found
