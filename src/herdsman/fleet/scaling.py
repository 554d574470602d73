"""Scaling policies: what is known of a pool's load, the policies that come with us, and how one is chosen by its name.

`threshold` and `workload` look at the queue alone. `adaptive` forecasts: how many jobs will come, from the last hour,
what followed this hour a day ago, and how much they come in crowds.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, lru_cache
from itertools import accumulate
from math import ceil, exp, sqrt
from typing import Protocol, Self

from herdsman.errors import InvalidSettings
from herdsman.fleet.actions import Number
from herdsman.fleet.model import FleetPolicy

SLOT = timedelta(minutes=5)
"""Arrivals are counted in pieces of so long."""
RECENT = 12
"""So many of the latest pieces are kept: an hour."""
AHEAD = 3
"""Of the day before, so many pieces before this time of day and after it are kept: what was about to come then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    arrivals: tuple[int, ...] = ()
    """Jobs that came in each of the latest pieces of time, the oldest first."""
    day_before: tuple[int, int] | None = None
    """A day ago, in the `AHEAD` pieces up to this time of day and in those after it; None where nothing is known."""
    service_s: tuple[float, ...] = ()
    """How long each of the latest jobs held its worker."""
    boots_s: tuple[float, ...] = ()
    """How long each of the latest workers took from its request to its first readiness."""
    waits_s: tuple[float, ...] = ()
    """How long each of the latest jobs waited before it first began."""
    failing: float = 0.0
    """The share of the latest starts that ended badly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    queued: int
    active: int = 0
    spawning: int = 0
    busy: int = 0
    since_scaled: timedelta | None = None
    """How long the fleet has had its size; None when that is not known."""
    held_for: tuple[timedelta, ...] = ()
    """How long each busy worker has been at its job."""
    starting_for: tuple[timedelta, ...] = ()
    """How long ago each starting worker was asked for."""
    failures: int = 0
    starts: int = 0
    """Starts that ended lately, well or badly, and how many of them badly."""
    cost_per_hour: float = 0.0
    """What one worker costs, as the ones that are there do on average; 0 where nobody knows."""
    demand: Demand | None = None

    @property
    def capacity(self) -> int:
        """Workers that are there or on their way."""
        return self.active + self.spawning


@dataclass(frozen=True, slots=True)
class Wanted:
    """Grow to so many, keep so many, and the terms both were computed from."""

    grow_to: int
    keep: int
    terms: Mapping[str, Number] = field(default_factory=dict[str, Number])
    said: str = ""
    """Why, in a sentence of the policy's own; empty where the terms say it all."""
    idle_limit: timedelta | None = None
    """How long a worker too many may be idle, where that is less than the settings allow."""


class ScalingPolicy(Protocol):
    """Pure: the same load and policy give the same answer. The ceiling is applied again by the caller."""

    def __call__(self, load: Load, policy: FleetPolicy) -> Wanted: ...


def bounded(wanted: int, policy: FleetPolicy) -> int:
    return min(policy.max_workers, max(policy.min_workers, wanted))


LEAST_S = 0.001
"""Nothing takes no time: what has just begun has not ended."""


@dataclass(frozen=True, slots=True)
class Spans:
    ordered: tuple[float, ...]
    sums: tuple[float, ...]
    """Of the first so many; one longer than the sample."""
    mean: float
    deviation: float

    def ends_within(self, age: float, span: float) -> tuple[float, float]:
        """How likely something that has lasted `age` ends within `span`, and how long it then lasts on average."""
        low, high = bisect_right(self.ordered, age), bisect_right(self.ordered, age + span)
        longer, ending = len(self.ordered) - low, high - low
        if longer == 0:
            # Nothing ever took as long: what has lasted so far is taken to last as long again.
            return span / (span + age), span / 2
        if ending == 0:
            return 0.0, span
        return ending / longer, (self.sums[high] - self.sums[low]) / ending - age


@lru_cache(maxsize=64)
def spans(sample: tuple[float, ...]) -> Spans:
    """A sample is asked about every worker of every cycle, and rarely changes."""
    ordered = tuple(sorted(max(each, LEAST_S) for each in sample))
    mean = sum(ordered) / len(ordered)
    deviation = sqrt(sum((each - mean) ** 2 for each in ordered) / len(ordered))
    return Spans(ordered, tuple(accumulate(ordered, initial=0.0)), mean, deviation)


SLOT_S = SLOT.total_seconds()
MOST_GROWTH = 3.0
"""However steep yesterday was, no more than so many times as many jobs are expected as come now."""
MOST_CROWD = 50.0
FEW = 0.05
"""So many may be late: the share of jobs that the target does not promise anything to."""
MANY = 60.0
"""Of so many, fewer than the few that may be late lie beyond their mean."""


def coming(known: Demand) -> float:
    """Jobs a second: the faster of the last minutes and the last quarter of an hour, and yesterday's rise."""
    counts = known.arrivals[-RECENT:]
    if not counts:
        return 0.0
    lately = counts[-AHEAD:]
    return max(counts[-1], sum(lately) / len(lately)) / SLOT_S * rise(known)


def most_coming(known: Demand, within: float) -> float:
    """No more than so many come within so many seconds, as a rule."""
    return _most(coming(known) * within, crowding(known, within))


def busiest(known: Demand, within: float) -> float:
    """The same by the whole last hour: who was needed within it may soon be again."""
    counts = known.arrivals[-RECENT:]
    rate = max(sum(counts) / len(counts) / SLOT_S, coming(known)) if counts else 0.0
    return _most(rate * within, crowding(known, within))


def rise(known: Demand) -> float:
    """How much more came a day ago within the next minutes than just before, where that was no accident."""
    if known.day_before is None:
        return 1.0
    was, then = known.day_before
    if then - was <= 2 * sqrt(crowding(known, SLOT_S) * (was + then)):
        return 1.0
    return min(MOST_GROWTH, then / max(was, 1))


def crowding(known: Demand, within: float) -> float:
    """How many come at once, as it looks over such a time: 1 where each comes by itself.

    Told from the differences of neighbouring counts, so that a slow rise does not look like a crowd.
    """
    counts = known.arrivals[-RECENT:]
    total = sum(counts)
    if len(counts) < 2 or total == 0:
        return 1.0
    jumps = sum((one - other) ** 2 for one, other in zip(counts[1:], counts, strict=False))
    whole = jumps / (2 * (len(counts) - 1)) / (total / len(counts))
    return 1 + (min(MOST_CROWD, max(1.0, whole)) - 1) * min(1.0, within / SLOT_S)


def _most(mean: float, crowd: float) -> float:
    """Crowds come by themselves, each at its own time."""
    return 0.0 if mean <= 0 else crowd * _enough(mean / crowd)


def _enough(mean: float) -> int:
    """The smallest count that is rarely passed, or past which few of all that come do: whichever is less.

    The first keeps nobody warm for what comes once a day, the second not for the peaks of what comes all the time.
    """
    if mean > MANY:
        return ceil(mean)
    count, here = 0, exp(-mean)
    reached, beyond = here, mean
    while reached < 1 - FEW and beyond > FEW * mean:
        beyond -= 1 - reached
        count += 1
        here *= mean / count
        reached += here
    return count


AIMED = 0.03
"""One in twenty may be late, and two in a hundred are kept in hand."""
UNKNOWN = 2.0
"""Jobs that are taken to have been late just as often as they may, before any was seen."""
MOST_CARE = 2.0
"""Beyond this, more care buys nothing: what is late then is late for another reason."""


@dataclass(frozen=True, slots=True)
class Lateness:
    jobs: int
    late: int

    @classmethod
    def of(cls, waits_s: Sequence[float], target: float) -> Self:
        return cls(len(waits_s), sum(1 for each in waits_s if each > target))

    @property
    def spare(self) -> float:
        """So many of the next jobs may be late."""
        return max(0.0, AIMED * self.jobs - self.late)

    @property
    def care(self) -> float:
        """How many margins of safety to take: 1 where jobs are late as often as they may be, less where they are not."""
        return min(MOST_CARE, (self.late + UNKNOWN) / (AIMED * self.jobs + UNKNOWN))

    def must(self, jobs: float) -> float:
        """Of so many, those that have to be in time. Half is held back for those that wait or run and are not counted yet."""
        return jobs - max(AIMED * jobs, min(jobs, self.spare / 2))


USUAL_BOOT_S = 120.0
"""Until a start has been timed."""
MOST_FAILING = 0.5
"""However many starts fail, at most twice as many workers are asked for: the breaker is there for the rest."""
LIKELY, POSSIBLE = 0.5, 0.2
"""A start that is in time as often as the first is worth a try, as often as the second only where it is cheaper."""
LINGERS_S = 60.0
"""About so long one that was not needed after all is there before it is drained."""


@dataclass(frozen=True)
class Outlook:
    """All in seconds from now."""

    target: float
    cycle: float
    """Until the next cycle."""
    took: Spans
    starts: Spans
    fails: float
    """The share of workers that never come."""
    lateness: Lateness
    known: Demand

    @cached_property
    def deadline(self) -> float:
        """On average a job has waited for half a cycle when it is first reckoned with."""
        return max(0.0, self.target - self.cycle / 2)

    @cached_property
    def slow(self) -> float:
        """When most of the workers that are asked for in the next cycle are there."""
        return self.starts.mean + self.starts.deviation + self.cycle

    @cached_property
    def starts_help(self) -> bool:
        """A worker asked for when a job waits is there in time: often enough, or so that some too many are cheaper.

        The other way is to have workers wait for jobs.
        """
        share, _ = self.starts.ends_within(0.0, self.deadline)
        if share >= LIKELY or share < POSSIBLE:
            return share >= LIKELY
        counts = self.known.arrivals
        rate = sum(counts) / len(counts) / SLOT.total_seconds() if counts else 0.0
        too_many = rate * (1 / share - 1) * (self.starts.mean + LINGERS_S)
        return too_many <= most_coming(self.known, max(0.0, self.slow - self.target))

    @cached_property
    def by(self) -> float:
        """The moment for which jobs and workers are counted."""
        return self.deadline if self.starts_help else max(self.deadline, self.slow)

    @cached_property
    def exposed(self) -> float:
        """For so long, jobs may come that have to begin before anything decided later could help them."""
        return 0.0 if self.starts_help else max(0.0, self.slow - self.target)

    def begun(self, free_at: float, until: float) -> float:
        """Jobs that a worker has begun by then, if it is free from a moment on."""
        return 0.0 if free_at > until else 1 + (until - free_at) / self.took.mean

    def by_busy(self, load: Load, until: float) -> float:
        """Each by how likely it ends its job in time: less what is doubtful, as far as jobs have been late."""
        doubt, begun = min(1.0, self.lateness.care), 0.0
        for held in load.held_for:
            chance, rest = self.took.ends_within(held.total_seconds(), until)
            sure = max(0.0, chance - doubt * sqrt(chance * (1 - chance)))
            begun += sure * self.begun(rest, until)
        return begun

    def by_starting(self, age: float) -> tuple[float, float]:
        """Jobs that one asked for so long ago has begun in time, and with those that it begins too late."""
        chance, rest = self.starts.ends_within(age, self.by)
        lives = 1.0
        if self.fails:
            # The longer a start takes, the more it looks like one of those that fail.
            ordered = self.starts.ordered
            longer = len(ordered) - bisect_right(ordered, age)
            still = (1 - self.fails) * max(longer / len(ordered), 1 / (len(ordered) + 1))
            lives = still / (self.fails + still)
        in_time = lives * chance * self.begun(rest, self.by)
        late = lives * (1 - chance) * (1.0 if age <= self.starts.ordered[-1] else chance)
        return in_time, in_time + late

    def racing(self, must: float, there: float) -> float:
        """With what it takes on top because each start is in time or not: much for one job, little for hundreds."""
        share, _ = self.starts.ends_within(0.0, self.by)
        return must + self.lateness.care * sqrt(max(0.0, must - there) * (1 - share))

    def crowd(self, most: float, within: float) -> float:
        """Between the mean and the most that may come, and beyond it where jobs have been late."""
        mean = coming(self.known) * within
        return mean + max(0.0, most - mean) * self.lateness.care


HALFWAY = 0.5
"""What comes early on the way has to begin earlier: the moment is not the only one to be looked at."""
KEPT = 2.0
"""Where starts are slow, who is there is kept for so many times the jobs that may come; nobody is started for them."""
BRIEFLY = 0.25
"""A worker too many may be idle for this share of a start where another comes in time; else for a whole one."""


def adaptive(load: Load, policy: FleetPolicy) -> Wanted:
    """As many workers as keep the wait near TARGET_WAIT_SEC, and no more; without any history, as `threshold`."""
    known = load.demand
    if known is None or not known.service_s:
        usual = threshold(load, policy)
        said = f"{load.queued} jobs wait, and none has been done yet that could tell how long they take"
        return Wanted(usual.grow_to, usual.keep, {**usual.terms, "history": "none"}, said)
    target = policy.target_wait.total_seconds()
    failing = load.failures / load.starts if load.starts else 0.0
    view = Outlook(
        target=target,
        cycle=policy.look_every.total_seconds(),
        took=spans(known.service_s),
        starts=spans(known.boots_s or (USUAL_BOOT_S,)),
        fails=min(MOST_FAILING, max(failing, known.failing)),
        lateness=Lateness.of(known.waits_s, target),
        known=known,
    )
    more = view.crowd(most_coming(known, view.exposed), view.exposed)
    can, missing = _missing(load, view, known, more)
    grow_to, keep = load.capacity + missing, load.busy + _spare(load, view, known)
    if load.since_scaled is not None and load.since_scaled < policy.min_scaling_interval:
        # Who starts is counted, so that growing needs no pause; what was asked for a moment ago is not sent away.
        keep = max(load.capacity, keep)
    jobs = f"{load.queued} jobs wait and up to {more:.0f} more come in time to matter"
    wait = f"the wait near {view.target:.0f}s ({view.lateness.late} of the latest {view.lateness.jobs} jobs were late)"
    begin = f"{can:.0f} can begin within {view.by:.0f}s, which keeps {wait}"
    if missing:
        begin = f"only {can:.0f} can begin within {view.by:.0f}s, so {missing} more workers keep {wait}"
    return Wanted(
        max(min(grow_to, policy.max_workers), bounded(0, policy)),
        bounded(keep, policy),
        {
            "queued": load.queued,
            "capacity": load.capacity,
            "busy": load.busy,
            "target_s": view.target,
            "service_s": round(view.took.mean, 1),
            "boot_s": round(view.starts.mean, 1),
            "per_minute": round(60 * coming(known), 2),
            "must_begin": round(load.queued + more, 1),
            "can_begin": round(can, 1),
            "within_s": round(view.by, 1),
            "late": view.lateness.late,
            "of_jobs": view.lateness.jobs,
            "usd_per_hour": round(load.cost_per_hour, 4),
        },
        f"{jobs}; {begin}",
        timedelta(seconds=view.starts.mean * (BRIEFLY if view.starts_help else 1)),
    )


def _missing(load: Load, view: Outlook, known: Demand, more: float) -> tuple[float, int]:
    """How many jobs can begin in time, and how many workers it takes that the others do as well."""
    must = load.queued + more
    there = view.by_busy(load, view.by) + (load.active - load.busy) * view.begun(0.0, view.by)
    starting = [view.by_starting(age.total_seconds()) for age in load.starting_for]
    can, ever = there + sum(each for each, _ in starting), there + sum(each for _, each in starting)
    one, one_ever = view.by_starting(0.0)
    needed = view.racing(view.lateness.must(must), there) if view.starts_help else must
    missing = max(_workers(needed - can, one), _workers(must - ever, one_ever))
    if view.exposed:
        early, each = _early(load, view, known)
        alive = 1 - view.fails
        here = (load.active - load.busy + alive * load.spawning) * each
        missing = max(missing, _workers(early - here, alive * each))
    return can, missing


def _spare(load: Load, view: Outlook, known: Demand) -> int:
    """Workers beyond the busy ones that are kept: who was needed within the last hour may soon be again.

    Twice what may come at most, though nobody was late: what is drained too early takes a whole start to come back.
    """
    wide = KEPT * max(busiest(known, view.exposed), most_coming(known, view.exposed))
    spare = _workers(load.queued + wide - view.by_busy(load, view.by), view.begun(0.0, view.by))
    return max(spare, _workers(*_early(load, view, known))) if view.exposed else spare


def _early(load: Load, view: Outlook, known: Demand) -> tuple[float, float]:
    """Jobs that must have begun half the way and that the busy do not begin, and how many a free worker begins."""
    span = HALFWAY * view.exposed
    until = view.target + span
    crowd = view.crowd(most_coming(known, span), span)
    return load.queued + crowd - view.by_busy(load, until), view.begun(0.0, until)


def _workers(jobs: float, each: float) -> int:
    """Rounded up, but not for what is lost in the arithmetic."""
    return max(0, ceil(jobs / each - 1e-6))


_USUAL = FleetPolicy()


def should_scale_up(queued_count: int, active_count: int, policy: FleetPolicy = _USUAL) -> bool:
    """Are more jobs queued than the workers there should have to take?"""
    if active_count == 0:
        return queued_count > 0
    return queued_count / active_count > policy.jobs_per_worker


def calculate_workers_needed(queued_count: int, active_count: int, policy: FleetPolicy = _USUAL) -> int:
    """How many workers to add: enough for the queue, at least the floor, never past the ceiling."""
    return max(0, bounded(_for_queue(queued_count, policy), policy) - active_count)


def threshold(load: Load, policy: FleetPolicy) -> Wanted:
    """The floor is kept whatever the queue; the queue asks for more only past the threshold."""
    grows = should_scale_up(load.queued, load.capacity, policy)
    added = calculate_workers_needed(load.queued, load.capacity, policy) if grows else 0
    keep = bounded(max(_for_queue(load.queued, policy), load.busy), policy)
    terms = {"queued": load.queued, "capacity": load.capacity, "threshold": policy.jobs_per_worker}
    return Wanted(max(load.capacity + added, bounded(0, policy)), keep, terms)


def _for_queue(queued: int, policy: FleetPolicy) -> int:
    return ceil(queued / policy.jobs_per_worker)


def workload(load: Load, policy: FleetPolicy) -> Wanted:
    """Busy workers, workers for the queue, and a warm buffer; the size is then kept for a while."""
    for_queue = _for_queue(load.queued, policy)
    wanted = bounded(load.busy + max(for_queue, policy.idle_workers), policy)
    settled = load.since_scaled is None or load.since_scaled >= policy.min_scaling_interval
    terms = {
        "queued": load.queued,
        "busy": load.busy,
        "for_queue": for_queue,
        "idle_buffer": policy.idle_workers,
        "settled": "yes" if settled else "no",
    }
    floor = bounded(0, policy)
    if not settled:
        return Wanted(floor, max(load.capacity, wanted), terms)
    return Wanted(max(wanted, floor), wanted, terms)


OURS: Mapping[str, ScalingPolicy] = {"threshold": threshold, "workload": workload, "adaptive": adaptive}
FORECASTING = frozenset({"adaptive"})
"""Those that ask for a pool's demand, and may change their mind though nothing happened."""


def forecasts(policy: FleetPolicy) -> bool:
    """Whether a pool's demand has to be counted: for the policy that decides, or for the one that is only asked."""
    return not FORECASTING.isdisjoint((policy.scaling, policy.shadow))


def require_installed(policy: FleetPolicy, installed: Mapping[str, ScalingPolicy]) -> None:
    """Raises `InvalidSettings` for a name that nobody has."""
    chosen(policy.scaling, installed)
    if policy.shadow:
        chosen(policy.shadow, installed, "SHADOW_SCALING_POLICY")


def chosen(name: str, installed: Mapping[str, ScalingPolicy], setting: str = "SCALING_POLICY") -> ScalingPolicy:
    if name not in installed:
        there = ", ".join(sorted(installed))
        raise InvalidSettings(f"{setting} is {name!r}, which is not installed; there are: {there}")
    return installed[name]
