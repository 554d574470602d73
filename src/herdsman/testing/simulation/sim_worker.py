"""A worker of the world: the real supervisor, with a simulated handler process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from signal import SIGKILL
from typing import TypeVar

from herdsman.access.authenticator import Authenticator, Keyring
from herdsman.access.commands import admit_worker, renew_worker_token
from herdsman.access.rules import Caller, Role
from herdsman.context import Services
from herdsman.errors import ClaimsHeld, Forbidden, NotFound, StaleWrite, StoreUnavailable, Unauthenticated, Unreachable
from herdsman.fleet.leader import Leadership
from herdsman.fleet.model import GpuDevice, GpuReport, SpawnRequest
from herdsman.jobs.model import Claim, ClaimKey
from herdsman.jobs.protocol import ClaimRequest, Ending, FinishAndClaim, HeartbeatReply, Load, WorkerHeartbeat
from herdsman.ports import Clock
from herdsman.testing.direct_queue import DirectQueue
from herdsman.testing.simulation.checks.history import Receipt
from herdsman.testing.simulation.external_service import WorldService
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.handlers import WorldChild
from herdsman.testing.simulation.scheduler import Process
from herdsman.testing.simulation.threads import WorldThreads
from herdsman.testing.simulation.timing import Timing
from herdsman.testing.simulation.world import World
from herdsman.worker.ahead import Prefetch
from herdsman.worker.handler_pool import HandlerPool
from herdsman.worker.heartbeat import BROKE, Keeper
from herdsman.worker.stop_rules import DeadMan, Limits
from herdsman.worker.supervisor import Supervisor

T = TypeVar("T")
GPU_MB = 24_000
REACHING = Prefetch(most=5, span_s=15.0, lead_s=10.0, patience_s=8.0, urgent_s=3.0, known=1)
"""Jobs of the world take seconds, and so does everything else."""
_REACHES = 0.6
"""The share of the workers that take jobs ahead."""
BY_HAND = Caller(token_id="hand", role=Role.OPERATOR, name="hand")


@dataclass(frozen=True, slots=True, kw_only=True)
class WireQueue(DirectQueue):
    """The way to the control plane: words get lost on it, and are heard twice."""

    world: World
    gate: "Gate"

    def claim(self, ask: ClaimRequest, wait: timedelta = timedelta(0)) -> Sequence[Claim]:
        return self._said(lambda: DirectQueue.claim(self, ask, wait))

    def beat(self, heartbeat: WorkerHeartbeat) -> HeartbeatReply:
        """A token whose time runs out is replaced; the answer with the new one may be lost."""
        renewed: list[str] = []

        def word() -> HeartbeatReply:
            self.gate.require_heard()
            reply = DirectQueue.beat(self, heartbeat)
            renewed.extend(self.gate.renew())
            return reply

        reply = self._said(word)
        self.gate.token = next(iter(renewed), self.gate.token)
        return reply

    def held(self) -> Sequence[ClaimKey]:
        return self._said(lambda: DirectQueue.held(self))

    def finish(self, endings: Sequence[Ending], then: ClaimRequest | None = None) -> FinishAndClaim:
        def word() -> FinishAndClaim:
            world, exchange = self.world, DirectQueue.finish(self, endings, then)
            for result in exchange.told:
                if result.status is None:
                    world.note("stale_end_refused" if result.stale else "end_refused")
                    continue
                world.books.receipts.append(
                    Receipt(
                        job_id=result.key.job_id,
                        token=result.key.token,
                        worker=self.worker_id,
                        status=result.status.value,
                        at=world.now,
                    )
                )
            return exchange

        return self._said(word)

    def _said(self, word: Callable[[], T]) -> T:
        world = self.world
        world.travel()
        if world.strikes(Fault.LOST_REQUEST):
            raise Unreachable("the request was lost")
        self.gate.pass_through()
        try:
            answer = word()
        except ClaimsHeld:
            world.note("claims_held")
            raise
        if world.strikes(Fault.DOUBLED_REQUEST):
            answer = word()
        if world.strikes(Fault.LOST_REPLY):
            raise Unreachable("the answer was lost")
        return answer


@dataclass
class Gate:
    """Who a worker is to the API: its token is checked with every request, as a route does."""

    services: Services
    keyring: Keyring
    authenticator: Authenticator
    leaderships: Callable[[], Sequence[Leadership]]
    """Of the replicas that answer now."""
    token: str = ""

    def require_heard(self) -> None:
        """In an outage, the one replica that leads answers for the claims of workers."""
        there = self.leaderships()
        if len(there) == 1 and there[0].holds_claims:
            raise ClaimsHeld("the database is away: go on")

    def register(self, request: SpawnRequest, incarnation: str) -> None:
        """With the token that its machine was given; one that was started manually, with that of a person."""
        secret = request.environment.get("HERDSMAN_BOOTSTRAP_TOKEN")
        caller = BY_HAND if secret is None else self.authenticator.verify(secret)
        self.token = admit_worker(self.services, self.keyring, caller, request.worker_id, incarnation).secret

    def pass_through(self) -> Caller:
        try:
            return self.authenticator.known(self.token) or self.authenticator.verify(self.token)
        except Unauthenticated as error:
            raise NotFound(f"the worker is no longer known: {error}") from error

    def renew(self) -> list[str]:
        issued = renew_worker_token(self.services, self.keyring, self.pass_through())
        return [] if issued is None else [issued.secret]


def run_worker(
    world: World,
    services: Services,
    process: Process,
    request: SpawnRequest,
    timing: Timing,
    gate: Gate,
    service: WorldService,
    end: Callable[[], None],
    nap: Clock | None = None,
) -> None:
    """The whole life of one; to be called in its process. By `nap` it sleeps when there is no job."""
    worker_id = request.worker_id
    if not _registered(world, gate, request, process.full_name.replace(" ", "-")):
        return
    threads, children = WorldThreads(world.scheduler, process), list[WorldChild]()

    def launch(load: Load) -> WorldChild:
        child = WorldChild(world, process, worker_id, load, world.now + world.random.uniform(0.1, 3), service)
        children.append(child)
        return child

    machine_goes_on = process.on_death

    def die() -> None:
        for child in children:
            child.end(-SIGKILL, "died")
        machine_goes_on()

    process.on_death = die

    def say(_: str) -> None:
        """The story has the steps."""

    warm = HandlerPool(launch=launch, clock=world.clock, say=say, start_limit=timedelta(seconds=30))
    queue = WireQueue(
        services=services,
        worker_id=worker_id,
        clock=nap or world.clock,
        poll=timing.poll,
        world=world,
        gate=gate,
        incarnation=process.full_name.replace(" ", "-"),
    )

    def report() -> GpuReport:
        device = GpuDevice(index=0, uuid=f"GPU-{worker_id}", name="world", total_mb=GPU_MB, used_mb=0, own_mb=0)
        return GpuReport(ready=warm.ready, seen=True, devices=(device,), node=f"node-{worker_id}")

    supervisor = Supervisor(
        queue=queue,
        keeper=Keeper(
            queue, world.clock, timing.heartbeat, report, say, warm.model_state, threads, self_fence=timing.self_fence
        ),
        clock=world.clock,
        limits=Limits(
            self_fence=timing.self_fence, drain_grace=timing.drain_grace, stop_grace=timing.stop_grace, poll=timing.look
        ),
        warm=warm,
        say=say,
        deadman=DeadMan(unowned_after=timing.unowned),
        end_instance=end,
        unfit=service.unfit,
        threads=threads,
        prefetch=REACHING if world.random.random() < _REACHES else Prefetch(most=1),
    )
    parted = supervisor.run()
    assert not parted.reason.startswith(BROKE), parted.reason
    process.over_at = world.now
    world.tell(process.name, f"left: {parted.how.name.lower()}")
    world.note(f"parted:{parted.how.name.lower()}")


def _registered(world: World, gate: Gate, request: SpawnRequest, incarnation: str) -> bool:
    """Whether it has a token; one that another incarnation was given is refused for good."""
    while True:
        world.travel()
        try:
            gate.register(request, incarnation)
        except (Forbidden, NotFound, StaleWrite, Unauthenticated) as error:
            world.note("registration_refused")
            world.tell(request.name, f"was refused: {type(error).__name__}")
            return False
        except StoreUnavailable:
            world.scheduler.sleep(1.0)
        else:
            return True
