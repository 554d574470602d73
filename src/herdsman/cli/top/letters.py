"""What the pages behind the first one say, part by part."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.table import Table as Letter
from rich.text import Text

from herdsman.cli.top.rows import gpu_memory
from herdsman.cli.top.words import bar, clean, ink, load, money, span, state
from herdsman.wire.dashboard import EtaOut, GpuBarOut, HerdWorkerOut, StepOut, WhyOut
from herdsman.wire.jobs import AttemptOut, JobDetail

SHOWN_LINES = 40
_NAMES = 7


def job_text(
    job: JobDetail,
    why: WhyOut,
    tries: Sequence[AttemptOut],
    eta: EtaOut | None,
    log: Sequence[str],
    now: datetime,
) -> Letter:
    return _letter(
        ("STATE", [_job_line(job, now), *_progress(job)]),
        ("ERROR", [ink(clean(job.last_error), "red")] if job.last_error else ()),
        ("WHY", (ink(clean(each)) for each in why.because)),
        ("WHEN", () if eta is None else _when(eta)),
        ("TRIES", (_attempt(each, now) for each in tries)),
        ("STEPS", _steps(why)),
        ("LOG", (ink(clean(each.expandtabs())) for each in log[-SHOWN_LINES:])),
    )


def _job_line(job: JobDetail, now: datetime) -> Text:
    tried = f"attempt {job.attempts - job.interruptions} of {job.max_attempts}"
    about = f"  {clean(job.type)} in pool {clean(job.pool)}, {tried}, {_ago(job.created_at, now)} old"
    return state(job.status) + ink(about)


def _progress(job: JobDetail) -> list[Text]:
    if job.progress is None:
        return []
    return [bar(job.progress, 40) + ink(f" {job.progress:4.0%}  {clean(job.progress_note or '')}")]


def _when(eta: EtaOut) -> Iterable[Text]:
    if eta.position is not None:
        yield ink(f"number {eta.position} in the line of its pool")
    for what, guess in (("starts", eta.start), ("ends", eta.finish)):
        if guess is not None:
            yield ink(f"{what} in {span(guess.p50)} (half of the times), {span(guess.p80)} (four of five)")
    yield ink(clean(eta.basis), "dim")


def _attempt(each: AttemptOut, now: datetime) -> Text:
    end = each.outcome or f"goes on for {_ago(each.claimed_at, now)}"
    error = ink(f": {clean(each.error)}", "red") if each.error else Text()
    return ink(f"{each.attempt:>2} on {clean(each.worker_id)}, {end}") + error


def worker_text(worker: HerdWorkerOut | None, why: WhyOut, now: datetime) -> Letter:
    return _letter(
        ("STATE", [state(why.state)] if worker is None else _worker_lines(worker, now)),
        ("WHY", (ink(clean(each)) for each in why.because)),
        ("GPUS", () if worker is None else (_gpu(each) for each in worker.gpus)),
        ("STEPS", _steps(why)),
    )


def _worker_lines(worker: HerdWorkerOut, now: datetime) -> list[Text]:
    beat = "never" if worker.last_heartbeat is None else f"{_ago(worker.last_heartbeat, now)} ago"
    price = "" if worker.cost_per_hour is None else f", {money(worker.cost_per_hour)}/h"
    machine = " on ".join(clean(each) for each in (worker.instance_type, worker.node_id) if each)
    lines = [
        state(worker.status) + ink(f" for {_ago(worker.since, now)}, {clean(worker.reason)}"),
        ink(f"pool {clean(worker.pool)}, {_ago(worker.created_at, now)} old, last heartbeat {beat}"),
        ink(f"{machine or 'a machine of unknown type'}{price}"),
    ]
    return [*lines, ink(clean(worker.error), "red")] if worker.error else lines


def _gpu(gpu: GpuBarOut) -> Text:
    busy = "" if gpu.busy_pct is None else f"  {gpu.busy_pct:.0f}% busy"
    place = "-" if gpu.index is None else str(gpu.index)
    fraction = gpu.used_mb / max(1, gpu.total_mb)
    drawn = bar(fraction, 20, load(fraction)) + gpu_memory([gpu])[8:]
    return ink(f"{place:>2} ") + drawn + ink(f"{busy}  {clean(gpu.name or gpu.uuid)}")


def step_text(step: StepOut, now: datetime) -> Letter:
    often = f", the same {step.times} times in a row" if step.times > 1 else ""
    numbers = (ink(f"{clean(name)}  {clean(str(value))}") for name, value in step.numbers.items())
    done = ink("done" if step.done else "not done", "green" if step.done else "yellow")
    return _letter(
        ("WHAT", [ink(clean(step.words))]),
        ("WHEN", [ink(f"{_ago(step.at, now)} ago, cycle {step.cycle}{often}")]),
        ("WHY", [ink(f"{clean(step.code)}: {clean(step.why)}")]),
        ("NUMBERS", numbers),
        ("OUTCOME", [done + ink(f" {clean(step.said)}")]),
    )


def _steps(why: WhyOut) -> Iterable[Text]:
    for step in why.history:
        space = " " * (13 - len(step.to_status))
        what = ink(f"{space}{clean(step.reason):<18} {clean(step.actor)}")
        yield ink(f"{step.ts:%H:%M:%S}  ") + state(step.to_status) + what


def _letter(*parts: tuple[str, Iterable[Text]]) -> Letter:
    """A name at the left of each part; one without lines is left out."""
    letter = Letter.grid(padding=(0, 1))
    letter.add_column(style="bold", width=_NAMES)
    letter.add_column(ratio=1, overflow="fold")
    for name, lines in parts:
        text = ink("\n").join(lines)
        if text:
            letter.add_row(name, text)
    return letter


def _ago(then: datetime, now: datetime) -> str:
    return span((now - then).total_seconds())
