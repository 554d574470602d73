"""A machine with GPUs that people lease for programs of their own, and those programs."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count

from herdsman.control.commands.gpus import report_gpus
from herdsman.control.commands.leases import grant_lease, keep_lease, release_lease
from herdsman.control.services import Services
from herdsman.core.errors import Gone, HerdsmanError, StoreUnavailable
from herdsman.core.gpu import GpuDevice
from herdsman.core.lease import Lease
from herdsman.core.lease_request import LeaseRequest
from herdsman.core.leasing import LeasePolicy, Wish
from herdsman.sim.checks.history import Use
from herdsman.sim.world.scheduler import Process
from herdsman.sim.world.world import World

NODE = "shelf"
GPUS = ("GPU-shelf-0", "GPU-shelf-1")
TOTAL_MB = 24_000
TTL = timedelta(seconds=20)
BEAT_S, STEP_S, REPORT_S = 5.0, 1.0, 4.0
POLICY = LeasePolicy(tolerance_mb=0)
MARGIN_S = POLICY.margin_of(TTL).total_seconds()
DANGER = 4.0
ASKED_TWICE = 2


class Shelf:
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
            devices = [self._device(index, gpu) for index, gpu in enumerate(GPUS)]
            try:
                report_gpus(self._services, NODE, devices)
            except StoreUnavailable:
                self._world.note("report_lost")
            self._world.scheduler.sleep(REPORT_S)

    def _device(self, index: int, gpu: str) -> GpuDevice:
        used = sum(memory for where, memory in self._used.values() if where == gpu)
        return GpuDevice(index=index, uuid=gpu, name="world", total_mb=TOTAL_MB, used_mb=used)

    def _hold_some(self, process: Process) -> None:
        world = self._world
        while world.troubled:
            world.scheduler.sleep(world.random.uniform(0.5, 6))
            lease = self._ask(process.name)
            if lease is not None:
                self._hold(process, *lease)

    def _ask(self, name: str) -> tuple[Lease, float] | None:
        """The lease, and when it was asked for: its time counts from then at the earliest."""
        world, chance = self._world, self._world.random
        wish = Wish(
            memory_mb=chance.choice((6_000, 12_000, 20_000)), exclusive=chance.random() < 0.2, node=NODE
        )
        token = f"lease-of-{name}-{next(self._numbers):06}"
        asked = LeaseRequest(agent=name, wish=wish, ttl=TTL, token=token)
        sent = world.now
        for _ in range(ASKED_TWICE):  # an answer that was lost is asked for again, in the same words
            try:
                found = grant_lease(self._services, asked, new_token=lambda: token, who=name)
            except StoreUnavailable:
                continue
            except HerdsmanError:
                return None
            return (found, sent) if isinstance(found, Lease) else None
        return None

    def _hold(self, process: Process, lease: Lease, sent: float) -> None:
        world = self._world
        process.on_death = lambda: self._free(lease.token)
        place = len(world.books.uses)
        # One that hears of its lease too late uses nothing of it.
        if world.now < sent + TTL.total_seconds() - MARGIN_S:
            self._used[lease.token] = (lease.gpu_uuid or "", lease.memory_mb)
            world.books.uses.append(_use(lease, began=world.now, asked=sent))
            self._work(lease, place, sent)
        self._free(lease.token)
        try:
            release_lease(self._services, lease.token, who=process.name)
        except HerdsmanError:
            world.note("lease_not_released")

    def _work(self, lease: Lease, place: int, sent: float) -> None:
        """Until it is done, or has to stop: by the answer to a heartbeat, or by its own clock."""
        world, until = self._world, self._world.now + self._world.random.uniform(1, 50)
        deadline, beaten = sent + TTL.total_seconds() - MARGIN_S, world.now
        while world.now < min(until, deadline):
            use = world.books.uses[place]
            world.books.uses[place] = replace(use, ended=world.now, until=max(deadline, use.began))
            if world.now - beaten >= BEAT_S:
                beaten = world.now
                try:
                    keep_lease(self._services, lease.token)
                except Gone:
                    world.note("lease_gone")
                    return
                except HerdsmanError:
                    continue
                deadline = beaten + TTL.total_seconds() - MARGIN_S
            world.scheduler.sleep(STEP_S)

    def _free(self, token: str) -> None:
        self._used.pop(token, None)


def _use(lease: Lease, *, began: float, asked: float) -> Use:
    return Use(
        token=lease.token,
        gpu=lease.gpu_uuid or "",
        seq=lease.seq,
        memory_mb=lease.memory_mb,
        exclusive=lease.exclusive,
        began=began,
        ended=began,
        asked=asked,
    )
