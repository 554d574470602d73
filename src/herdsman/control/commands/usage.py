"""What agents have used of the GPUs today; their quotas are held against it."""

from herdsman.control.services import Services
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.store import usage


def count_gpu_seconds(services: Services) -> int:
    """Of how many agents. Nothing is looked at where no agent has such a limit; two may count at once."""
    policy = services.rules()
    if not policy.counts_gpu_seconds:
        return 0
    found = services.database.read(lambda tx: usage.count(tx, but=policy.cpu_pool))
    limited = {
        agent: seconds
        for agent, seconds in found.items()
        if policy.limits_of(agent).gpu_seconds_per_day is not None
    }

    def write(tx: Tx) -> None:
        for agent in sorted(limited):
            usage.put(tx, agent, limited[agent])
        usage.forget(tx, tx.now() - usage.KEPT)

    try:
        services.database.transact(write)
    except Duplicate:  # another replica has counted the same in this very moment
        return 0
    return len(limited)
