"""The simulated server of streams keeps the promises that the real one keeps: each script is played on both."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

import pytest

from herdsman.ids import JobId, PoolId
from herdsman.redis.streams import (
    PAGE,
    DeadLetter,
    Entry,
    GroupMissing,
    Hint,
    Mirror,
    Read,
    Size,
    Streams,
    StreamSpent,
)
from tests.simulation.stages import LONG, NAMES, Script, Stage, in_the_world, on_redis
from tests.support.servers.redis import RedisServer

JOBS, DEAD = NAMES.jobs, NAMES.dead
NOW, NEVER = timedelta(0), timedelta(hours=1)
TRIES = 1000


def a_hint(name: str, version: int = 1) -> Hint:
    return Hint(job_id=JobId(name), type="demo", pool=PoolId("default"), version=version)


def ids(entries: list[Entry]) -> list[str]:
    return [entry.id for entry in entries]


def taken_over(streams: Streams, idle: timedelta) -> list[Entry]:
    return [entry for page in streams.take_over(JOBS, idle) for entry in page]


def a_group_begins_with_what_came_before_it(stage: Stage) -> None:
    one = stage.replica()
    first = stage.add(JOBS.name, {"job_id": "a"})
    with pytest.raises(GroupMissing):
        one.take(JOBS)
    assert [one.make_group(JOBS), one.make_group(JOBS)] == [True, False]
    assert one.take(JOBS) == [Entry(JOBS, first, {"job_id": "a"})]
    assert one.take(JOBS) == []


def an_entry_is_given_to_one(stage: Stage) -> None:
    one, two = stage.replica(), stage.replica("two")
    one.make_group(JOBS)
    entry = stage.add(JOBS.name, {"job_id": "a"})
    assert (ids(one.take(JOBS)), ids(two.take(JOBS))) == ([entry], [])
    assert (ids(one.mine(JOBS, "0-0")), ids(two.mine(JOBS, "0-0"))) == ([entry], [])
    assert (one.size(JOBS), two.size(JOBS)) == (Size(1, 1, 1), Size(1, 1, 0))


def what_one_holds_is_shown_after_an_id(stage: Stage) -> None:
    one = stage.replica()
    one.make_group(JOBS)
    added = [stage.add(JOBS.name, {"job_id": name}) for name in "abc"]
    one.take(JOBS)
    assert ids(one.mine(JOBS, added[0])) == added[1:]
    stage.delete(JOBS.name, added[2])
    assert one.mine(JOBS, added[1]) == [Entry(JOBS, added[2], {})]


def only_what_is_idle_is_taken_over(stage: Stage) -> None:
    one, two = stage.replica(), stage.replica("two")
    one.make_group(JOBS)
    added = [stage.add(JOBS.name, {"job_id": name}) for name in "abc"]
    one.take(JOBS)
    assert taken_over(two, NEVER) == []
    stage.delete(JOBS.name, added[1])
    assert ids(taken_over(two, NOW)) == [added[0], added[2]]
    assert (ids(one.mine(JOBS, "0-0")), ids(two.mine(JOBS, "0-0"))) == ([], [added[0], added[2]])
    assert two.size(JOBS) == Size(2, 2, 2), "one that is gone is let go of"


def what_is_settled_is_acknowledged_and_gone(stage: Stage) -> None:
    one = stage.replica()
    one.settle(JOBS, ["1-0"])
    one.make_group(JOBS)
    added = [stage.add(JOBS.name, {"job_id": name}) for name in "ab"]
    one.take(JOBS)
    one.settle(JOBS, [added[0], "1-0"])
    one.settle(JOBS, [])
    assert (ids(one.mine(JOBS, "0-0")), one.size(JOBS)) == ([added[1]], Size(1, 1, 1))


def an_announcement_is_an_entry_and_a_version(stage: Stage) -> None:
    one = stage.replica()
    one.make_group(JOBS)
    one.announce(JOBS, [a_hint("a"), a_hint("b", 3)])
    one.reflect([Mirror("a", {"status": "claimed"}), Mirror("c", {"status": "done"}, ended=True)])
    assert one.announced(["a", "b", "c", "d"]) == ["1", "3", None, None]
    assert [dict(entry.fields) for entry in one.take(JOBS)] == [
        {"job_id": "a", "type": "demo", "by": "one"},
        {"job_id": "b", "type": "demo", "by": "one"},
    ]


def a_death_is_announced_once(stage: Stage) -> None:
    one, two = stage.replica(), stage.replica("two")
    one.make_group(JOBS)
    stage.add(JOBS.name, {"job_id": "a"})
    (entry,) = one.take(JOBS)
    letter = DeadLetter(job_id="a", version=1, entry=entry)
    assert [one.add_dead_letters([letter, letter]), two.add_dead_letters([letter])] == [1, 0]
    assert (
        two.add_dead_letters([DeadLetter(job_id="a", version=2), DeadLetter(job_id="?"), DeadLetter(job_id="?")]) == 3
    )
    assert (one.length(DEAD), one.size(JOBS)) == (4, Size(0, 0, 0))


def what_everybody_has_acknowledged_is_trimmed(stage: Stage) -> None:
    one = stage.replica()
    one.trim(JOBS)
    one.make_group(JOBS)
    added = [stage.add(JOBS.name, {"job_id": name}) for name in "abc"]
    one.take(JOBS)
    later = stage.add(JOBS.name, {"job_id": "d"})
    stage.acknowledge(JOBS, added[0])
    stage.acknowledge(JOBS, added[2])
    one.trim(JOBS)
    assert one.length(JOBS.name) == 3, "what is held stays, and what is behind it"
    stage.acknowledge(JOBS, added[1])
    one.trim(JOBS)
    assert ids(one.take(JOBS)) == [later]


def a_listener_hears_what_comes_after_its_place(stage: Stage) -> None:
    one = stage.replica()
    assert one.listen({JOBS.name: "$", NAMES.control: "$"}) == {}
    first, second = (stage.add(JOBS.name, {"job_id": name}) for name in "ab")
    one.say(NAMES.control, {"event": "pause"})
    assert one.listen({JOBS.name: "$"}) == {}
    assert one.listen({JOBS.name: second, NAMES.control: "$"}) == {}
    heard = one.listen({JOBS.name: first, NAMES.control: "0-0"})
    assert list(heard[JOBS.name]) == [(second, {"job_id": "b"})]
    assert [fields for _, fields in heard[NAMES.control]] == [{"event": "pause"}]


def a_listener_that_waits_is_woken(stage: Stage) -> None:
    one, heard = stage.replica("one", LONG), list[Mapping[str, Read]]()
    strand = stage.threads.start(lambda: heard.append(one.listen({JOBS.name: "$"})), "listener")
    waits = (stage.listens() for _ in range(100_000))
    assert any(waits)
    entry = stage.add(JOBS.name, {"job_id": "a"})
    strand.join()
    assert heard == [{JOBS.name: [(entry, {"job_id": "a"})]}]


def everything_may_be_forgotten(stage: Stage) -> None:
    one = stage.replica()
    one.make_group(JOBS)
    one.announce(JOBS, [a_hint("a")])
    one.add_dead_letters([DeadLetter(job_id="b", version=1)])
    stage.flush()
    for words in _words_of_a_group(one):
        with pytest.raises(GroupMissing):
            words()
    one.trim(JOBS)
    one.forget_consumers(JOBS, NOW)
    assert (one.announced(["a"]), one.length(JOBS.name)) == ([None], 0)
    assert one.add_dead_letters([DeadLetter(job_id="b", version=1)]) == 1


def a_stream_may_be_removed(stage: Stage) -> None:
    one = stage.replica()
    one.make_group(JOBS)
    one.announce(JOBS, [a_hint("a")])
    one.remove(JOBS)
    one.remove(JOBS)
    for words in _words_of_a_group(one):
        with pytest.raises(GroupMissing):
            words()
    assert one.announced(["a"]) == ["1"], "mirrors are not part of it"


def a_stream_whose_ids_are_used_up_takes_nothing(stage: Stage) -> None:
    one = stage.replica()
    one.make_group(JOBS)
    stage.spend(JOBS.name)
    with pytest.raises(StreamSpent):
        one.announce(JOBS, [a_hint("a")])
    one.remove(JOBS)
    one.announce(JOBS, [a_hint("a")])
    assert one.length(JOBS.name) == 1


def who_is_silent_and_holds_nothing_is_forgotten(stage: Stage) -> None:
    one, two, three = (stage.replica(name) for name in ("one", "two", "three"))
    one.make_group(JOBS)
    for each in (one, two, three):
        entry = stage.add(JOBS.name, {"job_id": "a"})
        each.take(JOBS)
        each.settle(JOBS, [] if each is two else [entry])
    one.forget_consumers(JOBS, NEVER)
    assert stage.consumers(JOBS) == {"one", "two", "three"}
    for _ in range(TRIES):  # until a millisecond has passed
        one.forget_consumers(JOBS, NOW)
        if stage.consumers(JOBS) == {"one", "two"}:
            return
    pytest.fail(f"there are still {stage.consumers(JOBS)}")


def long_streams_come_in_pages(stage: Stage) -> None:
    one, two = stage.replica(), stage.replica("two")
    one.make_group(JOBS)
    one.announce(JOBS, [a_hint(f"job-{number}") for number in range(PAGE + 1)])
    assert [len(one.take(JOBS)) for _ in range(3)] == [PAGE, 1, 0]
    page = one.mine(JOBS, "0-0")
    assert (len(page), len(one.mine(JOBS, page[-1].id))) == (PAGE, 1)
    assert len(taken_over(two, NOW)) == PAGE + 1


def _words_of_a_group(one: Streams) -> Iterator[Callable[[], object]]:
    yield lambda: one.take(JOBS)
    yield lambda: one.mine(JOBS, "0-0")
    yield lambda: taken_over(one, NOW)
    yield lambda: one.size(JOBS)


SCRIPTS: tuple[Script, ...] = (
    a_group_begins_with_what_came_before_it,
    an_entry_is_given_to_one,
    what_one_holds_is_shown_after_an_id,
    only_what_is_idle_is_taken_over,
    what_is_settled_is_acknowledged_and_gone,
    an_announcement_is_an_entry_and_a_version,
    a_death_is_announced_once,
    what_everybody_has_acknowledged_is_trimmed,
    a_listener_hears_what_comes_after_its_place,
    a_listener_that_waits_is_woken,
    everything_may_be_forgotten,
    a_stream_may_be_removed,
    a_stream_whose_ids_are_used_up_takes_nothing,
    who_is_silent_and_holds_nothing_is_forgotten,
    long_streams_come_in_pages,
)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_real_server_plays_the_script(server: RedisServer, script: Script) -> None:
    on_redis(server, script)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_simulated_server_plays_the_same_script(script: Script) -> None:
    in_the_world(script)
