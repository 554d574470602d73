"""What a second scaling policy would have done, beside the one that decides.

GET /decisions/shadow is answered with ShadowReportOut.
"""

from datetime import datetime

from pydantic import Field

from herdsman.wire.model import Reply


class SideOut(Reply):
    """What one policy makes of a pool in one cycle."""

    policy: str
    workers: int = Field(description="Starting or active, if all of its plan succeeded.")
    spawns: int
    drains: int
    why: str


class ShadowOut(Reply):
    pool: str
    policy: str = Field(description="The name of the shadow.")
    differs: bool = Field(description="It would have done something else.")
    live: SideOut | None = Field(default=None, description="What was decided; null where both agree.")
    shadow: SideOut | None = Field(
        default=None, description="What it would have done; null where both agree, or it raised."
    )
    error: str = Field(default="", description="What the shadow raised; the cycle went on without it.")


class ShadowThenOut(ShadowOut):
    cycle: int
    at: datetime


class ShadowPoolOut(Reply):
    """One pool under one shadow."""

    pool: str
    policy: str
    cycles: int
    differed: int
    failed: int
    worker_hours_more: float = Field(
        description="Time of workers that only the shadow would have had, each cycle until the next."
    )
    worker_hours_less: float = Field(description="Time of workers that it would have gone without.")


class ShadowReportOut(Reply):
    hours: int
    since: datetime | None = Field(description="The first cycle that asked a shadow; null: none did.")
    cycles: int = Field(description="Cycles that asked a shadow.")
    differed: int = Field(description="Those of them in which it would have done something else.")
    failed: int = Field(description="Those of them in which it raised.")
    pools: tuple[ShadowPoolOut, ...]
    last: tuple[ShadowThenOut, ...] = Field(
        description="Where it differed or raised, newest first, at most 20."
    )
    truncated: bool = Field(description="There were more cycles; only the newest were looked at.")
