"""What can go wrong at Runpod, each to be switched on and off while the fake runs, by seed and rate."""

import threading
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter


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


class Setting(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, ser_json_timedelta="float")

    rate: float = 1.0
    lasting: timedelta = Field(default=timedelta(seconds=5), alias="lasting_sec")
    only: Annotated[frozenset[str], PlainSerializer(sorted)] = frozenset()
    times: int | None = None
    """Off by itself after so many hits."""


_SETTINGS = TypeAdapter(dict[Fault, Setting])


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

    def turn_on(self, fault: Fault, **setting: object) -> None:
        """With the fields of `Setting`."""
        with self._lock:
            self._hits[fault] = 0
            self._on[fault] = Setting.model_validate(setting)

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
            return _SETTINGS.dump_python(self._on, mode="json", by_alias=True)

    def replace(self, wanted: Mapping[str, object]) -> None:
        """Exactly these from now on, written as `shown` writes them; ValueError if one is not understood."""
        read = _SETTINGS.validate_python(wanted)
        with self._lock:
            self._hits.clear()
            self._on = read
