"""The job to try things out with."""

import threading
import time

import pytest

from herdsman.worker.context import Alone, Cancelled, JobContext
from herdsman.worker.registry import demo
from tests.support.up_command import until

PROMPT_S = 5.0


def test_a_long_one_stops_soon_after_it_was_cancelled() -> None:
    """However long its steps are: this one has steps of three minutes."""
    link, stopped = Alone(), threading.Event()

    def run() -> None:
        with pytest.raises(Cancelled):
            demo(JobContext(type="demo", payload={"seconds": 3600}, link=link))
        stopped.set()

    runs = threading.Thread(target=run, daemon=True)
    runs.start()
    until(lambda: link.said)
    link.stop = True
    assert stopped.wait(PROMPT_S)


def test_it_takes_as_long_as_it_was_asked_to() -> None:
    begun = time.monotonic()
    assert demo(JobContext(type="demo", payload={"seconds": 0.5})) == {"slept": 0.5}
    assert 0.5 <= time.monotonic() - begun < 0.5 + PROMPT_S
