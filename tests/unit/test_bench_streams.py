"""What the benchmark of the streams says of itself: what is held against what, and what a number stands for."""

from bench import streams_start
from bench.peers.catalogue import peers
from bench.peers.child import flooded
from bench.peers.peer import Passage
from bench.streams import BATCHES, FLOORS, PEERS, RIVALS, STORES, aims, name_of
from bench.streams_start import ALONE, FLOOR, HINTED, POLLED


def a_passage(rate: float) -> list[Passage]:
    return [Passage(submitted=2 * rate, through=rate)]


def test_every_peer_that_is_held_against_us_is_known() -> None:
    assert {*FLOORS.values(), *PEERS, FLOOR, *streams_start.PEERS} <= peers().keys()
    assert set(RIVALS) <= set(PEERS)


def test_redis_is_held_against_its_absence_its_streams_and_the_peers() -> None:
    ours = name_of("PostgreSQL", "with Redis", 100)
    found = {
        ours: a_passage(900),
        name_of("PostgreSQL", "without Redis", 100): a_passage(1_000),
        FLOORS[100]: a_passage(10_000),
        "celery": a_passage(899),
    }
    reached = {aim.what: aim.reached for aim in aims(found)}
    assert reached[f"{ours}, against {name_of('PostgreSQL', 'without Redis', 100)}"] is True
    assert reached[f"{ours}, against {FLOORS[100]}"] is False
    assert reached[f"{ours}, against celery"] is True
    assert reached[f"{ours}, against dramatiq"] is None
    assert len(reached) == 3 * len(STORES) * len(BATCHES) + len(BATCHES) * len(RIVALS)


def test_redis_may_cost_the_api_a_tenth_more_of_its_work() -> None:
    ours, theirs = (name_of("SQLite", streams, 1) for streams in ("with Redis", "without Redis"))
    found = {
        ours: [Passage(submitted=1, through=1, cpu_s=1.2)],
        theirs: [Passage(submitted=1, through=1, cpu_s=1.0)],
    }
    reached = {aim.what: aim.reached for aim in aims(found)}
    assert reached[f"CPU of {ours}, against {theirs}"] is False
    assert reached[f"{ours}, against {theirs}"] is True


def test_the_median_of_the_rounds_counts() -> None:
    ours, theirs = name_of("PostgreSQL", "with Redis", 1), "celery"
    found = {ours: [*a_passage(1), *a_passage(100), *a_passage(101)], theirs: a_passage(100)}
    assert [aim.ratio for aim in aims(found) if aim.what == f"{ours}, against {theirs}"] == [1.0]


def test_a_start_elsewhere_is_held_against_a_poll_and_against_a_start_here() -> None:
    times = {ALONE: [0.010] * 100, POLLED: [1.0] * 100, HINTED: [0.016] * 100}
    assert [aim.reached for aim in streams_start.aims(times)] == [True, False]
    assert [aim.reached for aim in streams_start.aims({HINTED: None})] == [None, None]


def test_what_warms_a_queue_is_not_timed() -> None:
    sent: list[int] = []
    began, ended = flooded(sent.append, 200)
    assert sent == [1, 200]
    assert began <= ended
