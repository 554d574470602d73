"""What can go wrong at Runpod, each to be switched on and off while the fake runs, by seed and rate."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import cast


class Fault(StrEnum):
    """Beside each: what its `only` narrows it to. `lasting` is how long, where that makes sense."""

    # Creating a pod; only: names of pods.
    CREATED_THEN_500 = "created_then_500"
    CREATED_THEN_CUT = "created_then_cut"
    CREATED_THEN_GARBAGE = "created_then_garbage"
    CREATED_TWICE = "created_twice"
    # Only: GPU types.
    NO_CAPACITY = "no_capacity"

    # Looking for pods; only: names of pods.
    LISTING_LAG = "listing_lag"
    FALSE_404 = "false_404"
    # Listing as a whole.
    LISTING_SHORT = "listing_short"
    LISTING_EMPTY = "listing_empty"
    LISTING_CUT = "listing_cut"

    # Only: names of pods.
    DELETE_IGNORED = "delete_ignored"

    # Any call; only: create, list, get, delete, action, logs, catalog, billing, volumes.
    STORM_429 = "storm_429"
    STORM_500 = "storm_500"
    UNAUTHORIZED = "unauthorized"
    NO_BALANCE = "no_balance"
    FORBIDDEN = "forbidden"
    HTML_403 = "html_403"
    HTML_502 = "html_502"
    SLOW = "slow"

    # The life of a new pod; only: names of pods.
    ZERO_GPU = "zero_gpu"
    NEVER_RUNNING = "never_running"
    NO_SSH = "no_ssh"
    SILENT = "silent"
    """RUNNING, but its command is never started: no heartbeat will come."""
    CRASH_LOOP = "crash_loop"
    PREEMPTED = "preempted"
    """Told with SIGTERM, killed five seconds later."""
    PREEMPTED_UNTOLD = "preempted_untold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    rate: float = 1.0
    lasting: timedelta = timedelta(seconds=5)
    only: frozenset[str] = frozenset()
    times: int | None = None
    """Off by itself after so many hits."""


class Faults:
    """Whether a fault hits depends on the seed, on whom, and on how often that one was asked for before.

    It does not depend on what happens to others, so that threads may race and a seed still means one story.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._on: dict[Fault, Setting] = {}
        self._asked: Counter[tuple[Fault, str]] = Counter()
        self._hits: Counter[Fault] = Counter()
        self._lock = threading.Lock()

    def turn_on(
        self,
        fault: Fault,
        *,
        rate: float = 1.0,
        lasting: timedelta = timedelta(seconds=5),
        only: frozenset[str] | set[str] = frozenset(),
        times: int | None = None,
    ) -> None:
        with self._lock:
            self._hits[fault] = 0
            self._on[fault] = Setting(rate=rate, lasting=lasting, only=frozenset(only), times=times)

    def turn_off(self, fault: Fault) -> None:
        with self._lock:
            self._on.pop(fault, None)

    def clear(self) -> None:
        with self._lock:
            self._on.clear()

    def setting(self, fault: Fault) -> Setting | None:
        with self._lock:
            return self._on.get(fault)

    def strikes(self, fault: Fault, whom: str) -> Setting | None:
        """The setting of the fault if it hits this time."""
        with self._lock:
            setting = self._on.get(fault)
            if setting is None or (setting.only and whom not in setting.only):
                return None
            self._asked[fault, whom] += 1
            chance = Random(f"{self._seed}/{fault}/{whom}/{self._asked[fault, whom]}").random()
            if chance >= setting.rate or self._hits[fault] == setting.times:
                return None
            self._hits[fault] += 1
            return setting

    def shown(self) -> dict[str, object]:
        with self._lock:
            return {
                fault.value: {
                    "rate": setting.rate,
                    "lasting_sec": setting.lasting.total_seconds(),
                    "only": sorted(setting.only),
                    "times": setting.times,
                }
                for fault, setting in self._on.items()
            }

    def replace(self, wanted: Mapping[str, object]) -> None:
        """Exactly these from now on, written as `shown` writes them; ValueError if one is not understood."""
        read = {Fault(name): _read(value) for name, value in wanted.items()}
        with self._lock:
            self._hits.clear()
            self._on = read


def _read(value: object) -> Setting:
    if not isinstance(value, dict):
        raise ValueError("a fault is set by an object")  # noqa: TRY004  one kind of error for all of it
    fields = cast("dict[str, object]", value)
    unknown = set(fields) - {"rate", "lasting_sec", "only", "times"}
    if unknown:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    only, times = fields.get("only", ()), fields.get("times")
    return Setting(
        rate=float(str(fields.get("rate", 1))),
        lasting=timedelta(seconds=float(str(fields.get("lasting_sec", 5)))),
        only=frozenset(str(each) for each in cast("list[object]", only)),
        times=None if times is None else int(str(times)),
    )
