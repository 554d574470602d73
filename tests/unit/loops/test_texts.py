"""Metrics, timeouts, words to systemd and crash records."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from herdsman.loops import CrashRecord, Heartbeat, Notifier, Watchdog, read_crashes
from herdsman.loops.health import age_metric, ready_metric, stalls_metric
from herdsman.loops.loop_group import misfits
from herdsman.loops.watchdog import all_stacks, write_crash
from herdsman.worker.heartbeat import WorkerProbes
from tests.support.servers.server import free_port
from tests.unit.loops.doubles import HandClock, ask, eventually


def test_metrics_are_in_the_text_format() -> None:
    assert ready_metric(ready=True).splitlines()[1:] == [
        "# TYPE wink_health_ready gauge",
        "wink_health_ready 1",
    ]
    assert age_metric({"a": 1.5, "b": 0.0}).splitlines()[1:] == [
        "# TYPE wink_heartbeat_age_seconds gauge",
        'wink_heartbeat_age_seconds{loop="a"} 1.5',
        'wink_heartbeat_age_seconds{loop="b"} 0',
    ]
    assert stalls_metric({"a": 2}).splitlines()[1:] == [
        "# TYPE wink_watchdog_stalls_total counter",
        'wink_watchdog_stalls_total{loop="a"} 2',
    ]


def test_each_family_stands_once_on_the_page_of_a_worker(tmp_path: Path) -> None:
    signs = WorkerProbes(
        threshold=60,
        interval=1,
        readiness=10,
        crash_dir=tmp_path,
        address=("127.0.0.1", free_port()),
        keeper=Heartbeat(),
        say=lambda _: None,
    )
    with signs.shown(lambda: True):
        page = ask(signs.address, "/metrics").text
    names = [family.name for family in text_string_to_metric_families(page)]
    assert names == ["wink_health_ready", "wink_heartbeat_age_seconds", "wink_watchdog_stalls"]
    assert page.count("wink_health_ready 1\n") == 1


def test_odd_names_of_loops_are_escaped() -> None:
    assert stalls_metric({'a"b\\c\nd': 1}).splitlines()[2] == ('wink_watchdog_stalls_total{loop="a\\"b\\\\c\\nd"} 1')


@pytest.mark.parametrize(
    "given",
    [
        {"max_processing_time": 600},
        {"watchdog_threshold": 180, "watchdog_interval": 30, "visibility_timeout": 300},
        {"watchdog_threshold": 2100, "watchdog_interval": 120, "visibility_timeout": 3600},
        {"watchdog_threshold": None, "visibility_timeout": 1},
    ],
)
def test_the_defaults_and_the_presets_fit(given: dict[str, Any]) -> None:
    assert list(misfits(**given)) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"visibility_timeout": 1320, "max_processing_time": 600},
            ("visibility_timeout > ", "1320 > 720 + 600"),
        ),
        ({"watchdog_threshold": 630, "max_processing_time": 600}, ("wait_time_seconds", "630 > 30 + 600")),
        ({"watchdog_interval": 240}, ("watchdog_interval < watchdog_threshold / 3", "240 < 720 / 3")),
    ],
)
def test_what_does_not_fit_is_named_with_its_numbers(given: dict[str, Any], said: tuple[str, str]) -> None:
    """Each limit is exclusive."""
    (misfit,) = misfits(**given)
    assert all(part in misfit for part in said)


@pytest.mark.parametrize("abstract", [True, False])
def test_systemd_is_told_on_either_kind_of_socket(abstract: bool, tmp_path: Path) -> None:
    name = f"@herdsman-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with listener(name) as heard:
        notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "2000000"})
        notifier.ready()
        notifier.alive()
        notifier.stopping()
        assert [heard.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]
        assert notifier.period == 1.0


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "many"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}],
)
def test_systemd_hears_of_life_only_if_it_asks_this_process(environment: dict[str, str], tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    with listener(name) as heard:
        Notifier({"NOTIFY_SOCKET": name, **environment}).alive()
        heard.settimeout(0)
        with pytest.raises(BlockingIOError):
            heard.recv(100)


def test_without_systemd_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Notifier({}).ready()
    assert caplog.text == ""
    Notifier({"NOTIFY_SOCKET": "/nowhere/notify"}).ready()
    assert "systemd could not be notified of READY=1" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("dies", [True, False], ids=["dead", "stalled"])
def test_a_stall_or_a_dead_watchdog_is_never_called_alive(dies: bool, tmp_path: Path) -> None:
    name, clock = str(tmp_path / "notify"), HandClock()

    class Spares(Watchdog):
        kills = 0

        def _kill(self) -> None:
            self.kills += 1
            if dies:
                raise SystemExit

    with listener(name) as heard:
        notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "2000000"})
        watchdog = Spares([Heartbeat(clock)], stall_threshold=1, check_interval=0.01, notifier=notifier)
        watchdog.start()
        assert heard.recv(100) == b"WATCHDOG=1"
        clock.advance(2)
        eventually(lambda: watchdog.kills)
        heard.settimeout(0)
        drain(heard)
        eventually(lambda: not watchdog.alive if dies else watchdog.kills > 3)
        with pytest.raises(BlockingIOError):
            heard.recv(100)
        watchdog.stop()


def test_a_crash_record_is_read_once(tmp_path: Path) -> None:
    assert read_crashes(tmp_path / "none") == []
    record = CrashRecord(at="2026", pid=7, threshold=60.0, stalled={"a": 65.2}, stacks="stack")
    path = write_crash(tmp_path / "deep" / "down", record)
    assert json.loads(path.read_text())["stalled"] == {"a": 65.2}
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert read_crashes(path.parent) == [record]
    assert read_crashes(path.parent) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"at": 1}'])
def test_a_broken_record_is_reported_and_removed(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "crash-7.json").write_text(text)
    write_crash(tmp_path, CrashRecord(at="2026", pid=8, threshold=1, stalled={}, stacks=""))
    assert [each.pid for each in read_crashes(tmp_path)] == [8]
    assert "crash-7.json is not one" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_the_stacks_name_this_very_line() -> None:
    assert "test_the_stacks_name_this_very_line" in all_stacks()
    assert "Thread MainThread" in all_stacks()


def listener(name: str) -> socket.socket:
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.settimeout(30)
    heard.bind(f"\0{name[1:]}" if name.startswith("@") else name)
    return heard


def drain(heard: socket.socket) -> None:
    try:
        while True:
            heard.recv(100)
    except BlockingIOError:
        return
