"""A program that holds a lease on a GPU: it loads, works, beats, and gives up by its own clock."""

from dataclasses import dataclass, replace
from datetime import timedelta

from herdsman.control.commands.leases import keep_lease
from herdsman.control.services import Services
from herdsman.core.errors import Gone, HerdsmanError, OutcomeUnknown
from herdsman.core.lease import Lease
from herdsman.core.leasing import LeasePolicy
from herdsman.sim.checks.uses import use_of
from herdsman.sim.world.world import World

TTL = timedelta(seconds=20)
POLICY = LeasePolicy(tolerance_mb=0)
TRUSTED_S = (TTL - POLICY.margin_of(TTL)).total_seconds()
"""So long after it was asked for, or kept, a lease may be used without another word."""
BEAT_S, STEP_S = 5.0, 1.0
LOAD_S, LONGEST_S = 8.0, 50.0
LATE_BEATS = 6


@dataclass
class Holder:
    world: World
    services: Services
    lease: Lease
    used: dict[str, tuple[str, int]]
    """What is really in use: each token's GPU and memory."""
    deadline: float

    def work(self, *, asked: float) -> None:
        """Until it is done, or has to stop: by the answer to a heartbeat, or by its own clock."""
        world = self.world
        self._place = len(world.books.uses)
        world.books.uses.append(use_of(self.lease, began=world.now, ended=world.now, asked=asked))
        self._beaten = self._heard = world.now
        # What is leased is not in use at once.
        loaded = world.now + world.random.uniform(0, LOAD_S)
        until = world.now + world.random.uniform(1, LONGEST_S)
        while world.now < min(until, self.deadline):
            self._note(ended=world.now, until=self.deadline)
            if world.now >= loaded:
                self.used[self.lease.token] = (self.lease.gpu_uuid or "", self.lease.memory_mb)
            if world.now - self._beaten >= BEAT_S and not self._beat():
                return
            world.scheduler.sleep(STEP_S)
        if world.now < until:
            self.used.pop(self.lease.token, None)
            self._note(late=self._beat_late())

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

    def _beat_late(self) -> str:
        """Its heart beats once more when its time is over for everybody: what is the answer?"""
        world = self.world
        world.scheduler.sleep(self._heard + TTL.total_seconds() - world.now)
        for _ in range(LATE_BEATS):
            world.scheduler.sleep(STEP_S)
            try:
                keep_lease(self.services, self.lease.token)
            except Gone:
                world.note("late_beat_refused")
                return "gone"
            except HerdsmanError:
                continue
            return "kept"
        return ""

    def _note(self, **known: object) -> None:
        uses = self.world.books.uses
        uses[self._place] = replace(uses[self._place], **known)
