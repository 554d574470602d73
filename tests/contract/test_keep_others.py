"""A worker keeps its own job alive, and no other's (X7)."""

import pytest

from herdsman.context import Services
from herdsman.errors import StaleWrite
from tests.support.builders import a_claim, a_worker
from tests.support.worker_calls import beat


def test_a_worker_cannot_keep_the_job_of_another(services: Services) -> None:
    claim = a_claim(services)
    other = a_worker(services, "other")
    with pytest.raises(StaleWrite, match="may not keep job"):
        beat(services, other, claim.key)
    beat(services, claim.worker_id, claim.key)
