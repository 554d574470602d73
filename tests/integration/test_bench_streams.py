"""The floor of the benchmark of the streams, on a real Redis."""

import pytest

from bench.peers.catalogue import peers
from bench.streams import FLOORS


@pytest.mark.parametrize("name", FLOORS.values())
def test_the_streams_alone_carry_every_job(name: str) -> None:
    """Else it waits for the missing ones, and says so. 150 leave a part of a pipeline over."""
    passage = peers()[name].through(150)
    assert passage.submitted > 0
    assert passage.through > 0
    assert passage.hinted is None, "nothing is stored elsewhere that an entry could name"


@pytest.mark.parametrize("name", FLOORS.values())
def test_the_streams_alone_say_when_a_job_began(name: str) -> None:
    assert all(0 < each < 60 for each in peers()[name].latency(3, 0.001))
