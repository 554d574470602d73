"""What a new machine is given so that its worker finds us: the address, its name, and a token that is good once."""

from collections.abc import Mapping
from dataclasses import dataclass

from herdsman.access.authenticator import Keyring
from herdsman.access.commands import create_bootstrap
from herdsman.context import Services
from herdsman.ids import PoolId, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAccess:
    services: Services
    keyring: Keyring
    url: str
    """Where a worker reaches the API."""

    def environment(self, worker_id: WorkerId, pool: PoolId) -> Mapping[str, str]:
        issued = create_bootstrap(self.services, self.keyring, worker_id, pool)
        return {
            "HERDSMAN_WORKER_ID": worker_id,
            "HERDSMAN_API_URL": self.url,
            "HERDSMAN_BOOTSTRAP_TOKEN": issued.secret,
        }


def by_name_only(worker_id: WorkerId, _pool: PoolId) -> Mapping[str, str]:
    """For workers that need no address: of the simulation, or started by a command of the user's."""
    return {"HERDSMAN_WORKER_ID": worker_id}
