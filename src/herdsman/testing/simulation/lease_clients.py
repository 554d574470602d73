"""A node whose GPUs other programs lease, and those programs: they load, work, send heartbeats and stop in time."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import count

from herdsman.context import Services
from herdsman.errors import Gone, HerdsmanError, OutcomeUnknown, StoreUnavailable
from herdsman.fleet.model import GpuDevice
from herdsman.leases.commands import grant_lease, keep_lease, release_lease, report_gpus
from herdsman.leases.rules import Lease, LeasePolicy, LeaseRequest, LeaseSpec
from herdsman.testing.simulation.checks.lease_checks import use_of
from herdsman.testing.simulation.scheduler import Process
from herdsman.testing.simulation.world import World

TTL = timedelta(seconds=20)
POLICY = LeasePolicy(tolerance_mb=0)
TRUSTED_S = (TTL - POLICY.margin_of(TTL)).total_seconds()
"""So long after it was asked for, or kept, a lease may be used without another word."""
BEAT_S, STEP_S = 5.0, 1.0
LOAD_S, LONGEST_S = 8.0, 50.0
LATE_BEATS = 6


@dataclass
class LeaseClient:
    world: World
    services: Services
    lease: Lease
    used: dict[str, tuple[str, int]]
    """What is really in use: each token's GPU and memory."""
    deadline: float

    def work(self, *, asked: float) -> None:
        """Until it is done, or has to stop: by the answer to a heartbeat, or by its own clock."""
        world = self.world
        use = use_of(self.lease, began=world.now, ended=world.now, asked=asked)
        world.books.uses.append(use)
        self._beaten = self._heard = world.now
        # What is leased is not in use at once.
        loaded = world.now + world.random.uniform(0, LOAD_S)
        until = world.now + world.random.uniform(1, LONGEST_S)
        while world.now < min(until, self.deadline):
            use.ended, use.until = world.now, self.deadline
            if world.now >= loaded:
                self.used[self.lease.token] = (self.lease.gpu_uuid or "", self.lease.memory_mb)
            if world.now - self._beaten >= BEAT_S and not self._beat():
                return
            world.scheduler.sleep(STEP_S)
        if world.now >= until:
            return
        self.used.pop(self.lease.token, None)
        # Its heart beats once more when its time is over for everybody: what is the answer?
        world.scheduler.sleep(self._heard + TTL.total_seconds() - world.now)
        for _ in range(LATE_BEATS):
            world.scheduler.sleep(STEP_S)
            try:
                keep_lease(self.services, self.lease.token)
            except Gone:
                world.note("late_beat_refused")
                use.late = "gone"
                return
            except HerdsmanError:
                continue
            use.late = "kept"
            return

    def _beat(self) -> bool:
        """Whether it is still ours, as far as we know."""
        world, self._beaten = self.world, self.world.now
        try:
            keep_lease(self.services, self.lease.token)
        except Gone:
            world.note("lease_gone")
            return False
        except OutcomeUnknown:
            self._heard = world.now
        except HerdsmanError:
            world.note("beat_not_heard")
        else:
            self._heard, self.deadline = world.now, self._beaten + TRUSTED_S
        return True


NODE = "rack"
GPUS = ("GPU-rack-0", "GPU-rack-1")
TOTAL_MB = 24_000
REPORT_S = 4.0
DANGER = 4.0
ASKED_TWICE = 2


class LeaseClients:
    def __init__(self, world: World, services: Services, holders: int) -> None:
        self._world = world
        self._services = replace(services, leasing=POLICY)
        self._holders = holders
        self._numbers: Iterator[int] = count(1)
        self._used: dict[str, tuple[str, int]] = {}
        """What is really in use: each token's GPU and memory."""

    def start(self) -> None:
        world = self._world
        keeper = world.process(NODE)
        keeper.danger = 0.0
        world.start(keeper, "reports", self._report)
        for number in range(self._holders):
            process = world.process(f"holder-{number + 1}")
            process.danger = DANGER
            world.start(process, "main", lambda process=process: self._hold_some(process))

    def _report(self) -> None:
        """What its driver sees, again and again."""
        while True:
            used = Counter[str]()
            for gpu, memory in self._used.values():
                used[gpu] += memory
            devices = [
                GpuDevice(index=index, uuid=gpu, name="world", total_mb=TOTAL_MB, used_mb=used[gpu])
                for index, gpu in enumerate(GPUS)
            ]
            try:
                report_gpus(self._services, NODE, devices)
            except StoreUnavailable:
                self._world.note("report_lost")
            self._world.scheduler.sleep(REPORT_S)

    def _hold_some(self, process: Process) -> None:
        world = self._world
        while world.troubled:
            world.scheduler.sleep(world.random.uniform(0.5, 6))
            sent = world.now  # the time of a lease counts from here at the earliest
            lease = self._ask(process.name)
            if lease is None:
                continue
            process.on_death = partial(self._used.pop, lease.token, None)
            holder = LeaseClient(world, self._services, lease, self._used, deadline=sent + TRUSTED_S)
            # One that hears of its lease too late uses nothing of it.
            if world.now < holder.deadline:
                holder.work(asked=sent)
            self._used.pop(lease.token, None)
            try:
                release_lease(self._services, lease.token, who=process.name)
            except HerdsmanError:
                world.note("lease_not_released")

    def _ask(self, name: str) -> Lease | None:
        chance = self._world.random
        spec = LeaseSpec(memory_mb=chance.choice((6_000, 12_000, 20_000)), exclusive=chance.random() < 0.2, node=NODE)
        token = f"lease-of-{name}-{next(self._numbers):06}"
        asked = LeaseRequest(agent=name, spec=spec, ttl=TTL, token=token)
        for _ in range(ASKED_TWICE):  # an answer that was lost is asked for again, in the same words
            try:
                found = grant_lease(self._services, asked, new_token=lambda: token, who=name)
            except StoreUnavailable:
                continue
            except HerdsmanError:
                return None
            return found if isinstance(found, Lease) else None
        return None
