"""What a cycle saw, as it is written down: enough to tell later what was decided on, and what would have changed it."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from herdsman.core.counterfactual import NextWorker, next_worker
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import SeenPool, SeenWorker, Snapshot, Unseen
from herdsman.core.states import WorkerState

MOST_POOLS = 50
MOST_JUDGED = 500
"""Pools times workers up to which it is asked what would have added one more: that judges each of them many times."""
TOO_MANY = "so many workers and pools were seen that it was not asked what would have added one more"


def counts(seen: Snapshot) -> dict[str, object]:
    """The numbers that a page plots, for each cycle again: few and small."""
    return {
        "queued": {each.id: each.queued for each in seen.pools[:MOST_POOLS]},
        "running": sum(_held(each) for each in seen.workers),
    }


def inputs(seen: Snapshot) -> dict[str, object]:
    judged = len(seen.pools) * len(seen.workers) <= MOST_JUDGED
    unseen = seen.instances.why if isinstance(seen.instances, Unseen) else None
    return {
        "now": seen.now.isoformat(),
        "pools": {each.id: _pool(seen, each, judged=judged) for each in seen.pools[:MOST_POOLS]},
        "more_pools": max(0, len(seen.pools) - MOST_POOLS),
        "instances": None if isinstance(seen.instances, Unseen) else len(seen.instances),
        "provider_unseen": unseen,
        "spent": {span: float(amount) for span, amount in seen.spent.items()},
        "most_together": seen.most_together,
        "note": "" if judged else TOO_MANY,
    }


def would(noted: Mapping[str, Any] | None) -> NextWorker | None:
    """What was written down of a pool's next worker; None where nothing was."""
    if noted is None:
        return None
    why = noted["blocked_by"]
    stands = None if why is None else Finding(Code(why["code"]), why["text"], why["numbers"])
    return NextWorker(queued=noted["queued"], at_queued=noted["at_queued"], blocked_by=stands)


def _pool(seen: Snapshot, pool: SeenPool, *, judged: bool) -> dict[str, object]:
    states = Counter(each.state.value for state in WorkerState for each in seen.of(pool.id, state))
    policy = pool.policy
    return {
        "queued": pool.queued,
        "workers": dict(states),
        "jobs_held": sum(_held(each) for state in WorkerState for each in seen.of(pool.id, state)),
        "min_workers": policy.min_workers,
        "max_workers": policy.max_workers,
        "scaling": policy.scaling,
        "failures": pool.failures,
        "starts": pool.starts,
        "last_scaled_at": _instant(pool.last_scaled_at),
        "wait_until": _instant(pool.wait_until),
        "stopped_by": pool.stopped_by,
        "drained": pool.drained,
        "state": None if pool.life is None else pool.life.state.value,
        "next": _next(next_worker(seen, pool.id)) if judged else None,
    }


def _next(found: NextWorker) -> dict[str, object]:
    why = found.blocked_by
    stands = None if why is None else {"code": why.code, "text": why.text, "numbers": dict(why.numbers)}
    return {"queued": found.queued, "at_queued": found.at_queued, "blocked_by": stands}


def _held(worker: SeenWorker) -> int:
    return (worker.job is not None) + len(worker.batch)


def _instant(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()
