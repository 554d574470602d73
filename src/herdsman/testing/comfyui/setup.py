"""What outlives a restart of the service: the machine, its folders, and what we know of it all."""

import re
import time
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from herdsman.testing.comfyui.faults import Faults
from herdsman.testing.comfyui.files import Files
from herdsman.testing.comfyui.ledger import Ledger

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    version: tuple[int, ...]
    speed: float
    random: Random
    most_upload_bytes: int = 100 * MEGABYTE
    faults: Faults = field(default_factory=Faults)
    ledger: Ledger = field(default_factory=Ledger)
    files: Files = field(default_factory=Files)

    @property
    def version_text(self) -> str:
        return ".".join(str(part) for part in self.version)

    def new_id(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    # What came with which version.

    @property
    def takes_our_id(self) -> bool:
        return self.version >= (0, 3, 45)

    @property
    def interrupts_by_id(self) -> bool:
        return self.version >= (0, 3, 57)

    @property
    def has_jobs(self) -> bool:
        return self.version >= (0, 6, 0)

    @property
    def wants_canonical_ids(self) -> bool:
        return self.version >= (0, 25, 0)

    @property
    def cancels_jobs(self) -> bool:
        return self.version >= (0, 26, 0)


def read_version(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(\.\d+){0,3}", text):
        raise ValueError(f"{text!r} is no version; write one such as 0.7.0")
    return tuple(int(part) for part in text.split("."))


def now_ms() -> int:
    return int(time.time() * 1000)
