"""The small parts of a worker, each on plain values."""

import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from herdsman.fleet.model import GpuReport
from herdsman.ids import NAME, JobId
from herdsman.jobs.model import ClaimKey
from herdsman.settings.environment import this_machine
from herdsman.worker.context import Alone, Cancelled, JobContext, UserError, failure_message
from herdsman.worker.gpu import Nvml, fake_gpus, on_node
from herdsman.worker.handler_process import Exit
from herdsman.worker.health import MachineHealth
from herdsman.worker.job_log import LONGEST_LINE, LogBook, split_lines
from herdsman.worker.pids import is_alone, kernel_kills, own_processes
from herdsman.worker.registry import Sources, UnusableHandler, fill_command, handler, load, split_command
from herdsman.worker.stop_rules import DeadMan, Heard, Leaving, Limits, Stop, must_stop

KEY = ClaimKey(JobId("j1"), 1)
LIMITS = Limits(self_fence=timedelta(seconds=25), drain_grace=timedelta(seconds=600), stop_grace=timedelta(seconds=30))


@pytest.mark.parametrize(
    ("heard", "leaving", "deadline", "expected"),
    [
        (Heard(kept_at=99), Leaving(), None, None),
        (Heard(kept_at=99, lost={KEY: "taken"}, cancel=frozenset({KEY})), Leaving(), None, Stop.LOST),
        (Heard(kept_at=99, lost={ClaimKey(JobId("j2"), 1): "taken"}), Leaving(), None, None),
        (Heard(kept_at=99, dismissed="gone"), Leaving(), None, Stop.LOST),
        (Heard(kept_at=75), Leaving(), None, Stop.FENCED),
        (Heard(kept_at=75.1), Leaving(), None, None),
        (Heard(kept_at=99, cancel=frozenset({KEY})), Leaving(), None, Stop.CANCELLED),
        (Heard(kept_at=99, cancel=frozenset({ClaimKey(JobId("j1"), 2)})), Leaving(), None, None),
        (Heard(kept_at=99), Leaving(), 100, Stop.TIMEOUT),
        (Heard(kept_at=99), Leaving(since=99), None, None),
        (Heard(kept_at=99), Leaving(since=99, at_once=True), None, Stop.DRAINED),
        (Heard(kept_at=99), Leaving(since=-500), None, Stop.DRAINED),
        (Heard(kept_at=99), Leaving(unowned="nobody answers"), None, Stop.UNOWNED),
    ],
)
def test_when_a_job_must_stop(heard: Heard, leaving: Leaving, deadline: float | None, expected: Stop | None) -> None:
    stop = must_stop(KEY, now=100, heard=heard, leaving=leaving, limits=LIMITS, deadline=deadline)
    assert stop is expected


def test_the_dead_man_switch_falls_only_when_nobody_owns_the_worker_or_its_life_is_over() -> None:
    """P6"""
    switch = DeadMan(unowned_after=timedelta(seconds=60), max_lifetime=timedelta(seconds=1000))
    assert switch.falls(now=100, began=0, answered_at=41) is None
    assert switch.falls(now=100, began=0, answered_at=40) == "no heartbeat was answered for 60 seconds"
    assert switch.falls(now=1000, began=0, answered_at=999) is not None
    assert DeadMan().falls(now=1e9, began=0, answered_at=0) is None


def test_log_lines_are_numbered_and_kept_until_they_were_taken() -> None:
    book = LogBook()
    book.add(["a", "b", "c"])
    first = book.piece(lines=2)
    assert first is not None
    assert (first.first, first.lines) == (0, ("a", "b"))
    assert book.piece(lines=2) == first, "a piece that did not arrive is sent again"
    book.taken(first)
    book.taken(first)
    rest = book.piece()
    assert rest is not None
    assert (rest.first, rest.lines) == (2, ("c",))
    book.taken(rest)
    assert book.piece() is None


@pytest.mark.parametrize("limits", [{"lines": 4}, {"size": 7}])
def test_a_log_is_cut_with_a_notice(limits: dict[str, int]) -> None:
    book = LogBook(**limits)
    book.add(["a"] * 10)
    piece = book.piece()
    assert piece is not None
    assert piece.lines == ("a", "a", "a", "log truncated after 3 lines: the rest was not kept")


def test_long_lines_are_broken_and_progress_bars_show_their_last_state() -> None:
    assert split_lines("x" * (LONGEST_LINE + 1)) == ["x" * LONGEST_LINE, "x"]
    assert split_lines(" 1%\r 2%\r 3%\r") == [" 3%"]
    assert split_lines("") == [""]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.events": "low 0\noom 3\noom_kill 2\n"}, 2),
        ({"memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"}, 5),
        ({}, 0),
    ],
)
def test_the_kernel_counts_its_kills(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/\n9:memory:/job\n")
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text)
    assert kernel_kills(tmp_path / "proc", tmp_path / "cgroup") == expected


class OutOfMemoryError(RuntimeError):
    """As PyTorch and CuPy call theirs."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), "out_of_memory"),
        (OutOfMemoryError("x"), "out_of_memory"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "out_of_memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes."), "out_of_memory"),
        (RuntimeError("shape mismatch"), "job_error"),
        (UserError("CUDA out of memory is what I want to draw"), "user_error"),
        (Cancelled("x"), "cancelled"),
    ],
)
def test_exceptions_have_their_class(error: Exception, expected: str) -> None:
    assert failure_message(error)["failure"] == expected


def test_an_error_that_wraps_a_full_gpu_is_one() -> None:
    error = ValueError("the step failed")
    error.__cause__ = RuntimeError("CUDA out of memory")
    assert failure_message(error)["failure"] == "out_of_memory"


def test_templates_are_split_before_they_are_filled() -> None:
    words = split_command("render '{payload.a b}' --n={payload.n} {payload.deep.x} {{}}")
    values = {"payload": {"a b": "one two; three", "n": [1], "deep": {"x": None}}}
    assert fill_command(words, values) == ["render", "one two; three", "--n=[1]", "null", "{}"]


@pytest.mark.parametrize("template", ["", "run {secret}", "run 'open", "run {payload_x}"])
def test_templates_that_cannot_be_used_are_refused_before_any_job(template: str) -> None:
    with pytest.raises(UnusableHandler):
        load(Sources(commands=(f"c={template}",)))


@pytest.mark.parametrize("payload", [{}, {"a": "nul\0"}, "text", None])
def test_a_job_that_does_not_fit_its_command_is_wrong(payload: object) -> None:
    with pytest.raises(UserError):
        fill_command(split_command("run {payload.a}"), {"payload": payload})


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": ""},
        {"type": "t", "batch": 0},
        {"type": "t", "batch": 101},
        {"type": "t", "linger_ms": -1},
        {"type": "t", "stall_seconds": 0},
        {"type": "t", "memory_limit_mb": 0},
    ],
)
def test_a_handler_with_impossible_wishes_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        handler(**wrong)


@pytest.mark.parametrize(
    "sources",
    [
        Sources(functions=("json",)),
        Sources(functions=("json:nothing",)),
        Sources(functions=("json:__doc__",)),
        Sources(modules=("json",)),
        Sources(commands=("demo=echo",)),
        Sources(installed=False),
    ],
)
def test_handlers_that_cannot_be_used_are_named(sources: Sources) -> None:
    with pytest.raises(UnusableHandler):
        load(sources)


def test_a_plain_function_takes_its_own_name_as_its_type() -> None:
    assert load(Sources(functions=("json:dumps",), installed=False)).keys() == {"dumps"}


def test_a_handler_can_be_tried_without_a_worker() -> None:
    alone = Alone()
    job = JobContext(type="t", payload={"n": 1}, link=alone)
    job.progress(2, "over")
    job.save_checkpoint([1])
    assert job.checkpoint() == [1]
    assert alone.said == [{"progress": 1.0, "note": "over"}]
    assert job.remaining() is None
    with pytest.raises(ValueError, match="from 0 to 1"):
        job.progress(float("nan"))
    place = job.workspace
    assert place.is_dir()
    alone.stop = True
    with pytest.raises(Cancelled):
        job.raise_if_cancelled()
    del job
    gc.collect()
    assert not place.exists()


SEEN = GpuReport(ready=True, seen=True)


@dataclass
class Machine:
    """With 10 MB of disk and 10 MB of memory free, unless the test takes them away."""

    directory: Path
    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        usage = SimpleNamespace(total=20 * 1024 * 1024, free=10 * 1024 * 1024)

        def measured(_: object) -> SimpleNamespace:
            return usage

        self.monkeypatch.setattr("shutil.disk_usage", measured)
        (self.directory / "meminfo").write_text("MemTotal: 99999 kB\nMemAvailable: 10240 kB\n")

    def health(
        self, needs: dict[str, Any], seen: GpuReport = SEEN, *, fault: str | None = None, loaded: bool = True
    ) -> MachineHealth:
        warm = cast("Any", SimpleNamespace(ready=loaded, fault=fault))
        return MachineHealth(
            gpus=lambda: seen,
            warm=warm,
            **needs,
            volume=self.directory,
            meminfo=self.directory / "meminfo",
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("seen", "needs", "fault", "loaded", "ready", "words"),
    [
        (SEEN, {}, None, True, True, None),
        (SEEN, {}, None, False, False, None),
        (SEEN, {"disk_mb": 11}, None, True, False, None),  # no fault: there may be room again
        (SEEN, {"memory_mb": 11}, None, True, False, None),
        (SEEN, {}, "cannot be imported", True, False, "cannot be imported"),
        (GpuReport(ready=False, seen=True, fault="NVML: lost"), {}, None, True, False, "NVML: lost"),
    ],
)
def test_only_a_fit_machine_is_ready(
    machine: Machine,
    seen: GpuReport,
    needs: dict[str, Any],
    fault: str | None,
    loaded: bool,
    ready: bool,
    words: str | None,
) -> None:
    report = machine.health(needs, seen, fault=fault, loaded=loaded).report()
    assert report is not None
    assert report.ready is ready
    assert (report.fault is None) if words is None else words in (report.fault or "")


def test_what_a_machine_lacks_is_said_with_its_numbers(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.health({"disk_mb": 10, "memory_mb": 10}).short() is None
    for needs, what in (({"disk_mb": 11}, "disk"), ({"memory_mb": 11}, "memory")):
        said = f"only 10 MB of {what} are free, and jobs need 11: make room"
        assert machine.health(needs).short() == said

    def away(_: object) -> object:
        raise OSError

    monkeypatch.setattr("shutil.disk_usage", away)
    (machine.directory / "meminfo").unlink()
    unmeasured = machine.health({"disk_mb": 11, "memory_mb": 11})
    assert unmeasured.short() is None
    report = unmeasured.report()
    assert report is not None
    assert report.disk_free_mb is None


def test_the_disk_that_a_worker_was_started_on_is_measured(tmp_path: Path) -> None:
    warm = cast("Any", SimpleNamespace(ready=True, fault=None))
    report = MachineHealth(gpus=lambda: SEEN, warm=warm, volume=tmp_path).report()
    assert report is not None
    assert 0 < (report.disk_free_mb or 0) <= (report.disk_total_mb or 0)


def test_fake_gpus_have_names_of_their_own() -> None:
    report = fake_gpus(2)()
    assert [each.uuid for each in report.devices] == ["FAKE-GPU-0", "FAKE-GPU-1"]
    assert report.vram_total_mb == sum(each.total_mb for each in report.devices)


def test_two_workers_with_fake_gpus_on_one_machine_have_two() -> None:
    ann = on_node("box", fake_gpus(1, owner="ann", given=("0",)))()
    bob = on_node("box", fake_gpus(1, owner="bob", given=("3",)))()
    found = [(report.node, each.index, each.uuid) for report in (ann, bob) for each in report.devices]
    assert found == [("box", 0, "FAKE-ann-0"), ("box", 3, "FAKE-bob-3")]


@pytest.mark.parametrize("given", [None, (), ("GPU-1a2b",), ("1", "2", "3"), ("MIG-x", "0")])
def test_fake_gpus_that_were_given_no_places_count_from_0(given: tuple[str, ...] | None) -> None:
    report = fake_gpus(2, owner="w" * 128, given=given)()
    assert [each.index for each in report.devices] == [0, 1]
    assert all(len(each.uuid) <= 64 for each in report.devices), "as long as anybody keeps it"


class FakeNvml:
    """Two GPUs; the driver does not say how busy they are."""

    class NVMLError(Exception):
        pass

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlShutdown(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetIndex(self, handle: int) -> int:  # noqa: N802
        return handle

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, _handle: int) -> bytes:  # noqa: N802
        return b"H200"

    nvmlMemory_v2 = 2  # noqa: N815
    old = False

    def nvmlDeviceGetMemoryInfo(self, _handle: int, version: int | None = None) -> object:  # noqa: N802
        if version is None:
            return SimpleNamespace(total=8 << 30, used=2 << 30)
        if self.old:
            raise self.NVMLError("Function Not Found")
        return SimpleNamespace(total=8 << 30, reserved=1 << 30, used=1 << 30)

    def nvmlDeviceGetUtilizationRates(self, _handle: int) -> object:  # noqa: N802
        raise self.NVMLError("Not Supported")

    running: Sequence[tuple[int, int | None]] = ((7, None),)

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: int) -> list[object]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in self.running]


def test_each_gpu_is_described_and_what_a_driver_does_not_say_is_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", cast("ModuleType", FakeNvml()))
    report = Nvml()()
    assert (report.ready, report.vram_total_mb, report.vram_used_mb) == (True, 16384, 2048)
    first = report.devices[0]
    assert (first.uuid, first.name, first.utilisation, first.processes) == (
        "GPU-0",
        "H200",
        None,
        ((7, None),),
    )


@pytest.mark.parametrize(
    ("own", "running", "expected"),
    [
        ({7, 8}, [(7, 1 << 30), (8, 2 << 30), (9, 4 << 30)], 3072),
        ({7, 8}, [(9, 4 << 30)], 0),
        ({7, 8}, [(7, 1 << 30), (8, None)], None),
        (None, [(7, 1 << 30)], None),
        ({999}, [(pid, 1 << 20) for pid in range(1, 1000)], 1),
    ],
)
def test_the_memory_of_our_own_processes_is_told_where_the_driver_names_them(
    monkeypatch: pytest.MonkeyPatch,
    own: set[int] | None,
    running: list[tuple[int, int | None]],
    expected: int | None,
) -> None:
    nvml = FakeNvml()
    nvml.running = running
    monkeypatch.setitem(sys.modules, "pynvml", cast("ModuleType", nvml))
    device = Nvml(own=lambda: own)().devices[0]
    assert device.own_mb == expected
    assert len(device.processes) <= 100


def a_process(proc: Path, pid: int, parent: int, *, state: str = "S", group: int = 1) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (a ) name) {state} {parent} {group} 1 0")


def test_all_that_came_of_a_process_is_its_own(tmp_path: Path) -> None:
    for pid, parent in ((1, 0), (5, 1), (6, 5), (7, 6), (8, 1)):
        a_process(tmp_path, pid, parent)
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    assert own_processes(tmp_path, 5) == {5, 6, 7}


@pytest.mark.parametrize(("link", "known"), [("pid:[4026531836]", True), ("pid:[4026532999]", False)])
def test_in_a_container_nobody_knows_the_driver_s_numbers(tmp_path: Path, link: str, known: bool) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to(link)
    a_process(tmp_path, 5, os.getpid())
    assert own_processes(tmp_path) == ({5, os.getpid()} if known else None)
    assert own_processes(tmp_path / "nowhere") is None


def test_a_group_is_gone_when_only_the_dead_are_left(tmp_path: Path) -> None:
    """L3"""
    a_process(tmp_path, 5, 1, group=5, state="Z")
    a_process(tmp_path, 6, 1, group=5, state="Z")
    a_process(tmp_path, 7, 1, group=7)
    assert is_alone(5, tmp_path)
    a_process(tmp_path, 8, 1, group=5, state="D")
    assert not is_alone(5, tmp_path)


def test_a_machine_has_a_name_that_an_id_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    for host, expected in (
        ("gpu-01.example", "gpu-01.example"),
        ("_b\u00fcro 1_", "b-ro-1"),
        ("", "machine"),
    ):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        name = this_machine()
        assert (name, NAME.fullmatch(name) is not None) == (expected, True)


@pytest.mark.parametrize(
    ("status", "words"),
    [(-11, "was ended by signal 11 (SIGSEGV)"), (3, "exited with status 3"), (-40, "was ended by signal 40")],
)
def test_how_a_process_ended_in_words(status: int, words: str) -> None:
    assert str(Exit(status)) == words


def test_an_old_driver_counts_what_it_keeps_as_used(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    nvml.old = True
    monkeypatch.setitem(sys.modules, "pynvml", cast("ModuleType", nvml))
    assert Nvml()().vram_used_mb == 4096
