"""A second scaling policy beside the one that decides: what it would have done. Nothing that it says is done."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index

from herdsman.fleet.actions import Action, DrainIdleWorker, Note, SpawnWorker
from herdsman.fleet.decide import Plan, decide
from herdsman.fleet.phases.scale import wanted_workers
from herdsman.fleet.snapshot import PoolSnapshot, Snapshot
from herdsman.ids import PoolId
from herdsman.states import WorkerState

LONGEST = 500
"""Of a sentence that a policy says: it may be anybody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one policy makes of a pool."""

    policy: str
    workers: int
    """Those that would be starting or active if all of its plan succeeded."""
    spawns: int
    drains: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    pool: PoolId
    policy: str
    """The name of the shadow."""
    live: Side
    shadow: Side | None
    """None where it could not be told, because it raised."""
    error: str = ""

    @property
    def differs(self) -> bool:
        """It would have done something else. What both want and neither may do is no difference."""
        mine, other = self.live, self.shadow
        return other is not None and (mine.workers, mine.spawns, mine.drains) != (
            other.workers,
            other.spawns,
            other.drains,
        )


def compare(seen: Snapshot, live: Plan) -> tuple[Compared, ...]:
    """Every pool that has a shadow. Never raises: what a shadow raises is told, and the cycle goes on."""
    shadowed = [pool for pool in seen.pools if pool.policy.shadow]
    if not shadowed:
        return ()
    asked = {pool.id: _asked(_as_shadow(pool), seen) for pool in shadowed}
    broken = {name: error for name, (_, error) in asked.items() if error}
    plan, error = _decided(_under_shadows(seen, leaving=broken))
    now = _Sides(seen, live)
    then = None if plan is None else _Sides(seen, plan)
    return tuple(
        Compared(
            pool=pool.id,
            policy=pool.policy.shadow,
            live=now.of(pool.id, pool.policy.scaling, _asked(pool, seen)[0]),
            shadow=None
            if then is None or pool.id in broken
            else then.of(pool.id, pool.policy.shadow, asked[pool.id][0]),
            error=broken.get(pool.id, error),
        )
        for pool in shadowed
    )


def _as_shadow(pool: PoolSnapshot) -> PoolSnapshot:
    return replace(pool, policy=replace(pool.policy, scaling=pool.policy.shadow, shadow=""))


def _under_shadows(seen: Snapshot, leaving: Collection[PoolId]) -> Snapshot:
    """All pools at once: they share a ceiling. One whose shadow raises stays under the policy that decides."""
    pools = (
        _as_shadow(pool) if pool.policy.shadow and pool.id not in leaving else pool for pool in seen.pools
    )
    return replace(seen, pools=tuple(pools))


def _asked(pool: PoolSnapshot, seen: Snapshot) -> tuple[str, str]:
    """What the policy of a pool says of it, and else what is wrong with the policy."""
    try:
        wanted = wanted_workers(pool, seen)
        index(wanted.grow_to + wanted.keep)
        terms = ", ".join(f"{name} {value}" for name, value in wanted.terms.items())
        return str(wanted.said) or terms, ""
    except Exception as error:  # noqa: BLE001  (it may be a plugin's, and it is only asked)
        return "", _told(error)


def _decided(trial: Snapshot) -> tuple[Plan | None, str]:
    try:
        return decide(trial), ""
    except Exception as error:  # noqa: BLE001  (as above; the plan that counts was made before)
        return None, _told(error)


def _told(error: Exception) -> str:
    return plain(f"{type(error).__name__}: {error}")


def plain(text: str) -> str:
    """One line that every database can keep."""
    return "".join(each if each.isprintable() else " " for each in text[:LONGEST])


class _Sides:
    """One plan, by pools."""

    def __init__(self, seen: Snapshot, plan: Plan) -> None:
        self._expected = plan.expected
        homes = {worker.id: worker.pool for worker in seen.workers}
        self._actions: dict[str, list[Action]] = {}
        for action in plan.actions:
            match action:
                case SpawnWorker(pool=about) | Note(about=about):
                    self._actions.setdefault(about, []).append(action)
                case DrainIdleWorker(worker_id=worker_id):
                    self._actions.setdefault(homes[worker_id], []).append(action)
                case _:
                    pass

    def of(self, pool: PoolId, policy: str, said: str) -> Side:
        actions = self._actions.get(pool, [])
        spawns = [each for each in actions if isinstance(each, SpawnWorker)]
        drains = [each for each in actions if isinstance(each, DrainIdleWorker)]
        return Side(
            policy=policy,
            workers=sum(1 for _ in self._expected.of(pool, WorkerState.SPAWNING, WorkerState.ACTIVE)),
            spawns=len(spawns),
            drains=len(drains),
            why=plain(_sentence({"asks for": spawns, "lets go of": drains}, actions, said)),
        )


def _sentence(
    done: Mapping[str, Sequence[SpawnWorker | DrainIdleWorker]], actions: Sequence[Action], said: str
) -> str:
    parts = [f"{verb} {len(each)}: {each[0].why.text}" for verb, each in done.items() if each]
    if parts:
        told = "; ".join(parts)
        return told if not said or said in told else f"{told} ({said})"
    kept = next((each.why.text for each in actions if isinstance(each, Note)), said)
    return f"changes nothing: {kept}" if kept else "changes nothing"
