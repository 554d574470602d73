"""How much a test does: enough for every change by default, and much more in `make soak`."""

import os

SOAK = "HERDSMAN_SOAK" in os.environ
SLACK = 1 if SOAK else 3
"""Times are promised for a machine with room; beside other tests, three times as long is let pass."""


def amount(name: str, usual: int, soak: int | None = None) -> int:
    """`HERDSMAN_CHAOS_KILLS=100` and so on ask for another one."""
    standard = usual if soak is None or not SOAK else soak
    return int(os.environ.get(f"HERDSMAN_CHAOS_{name}", standard))
