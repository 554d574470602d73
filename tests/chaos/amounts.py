"""How much is done: enough for every change by default, and what the promises were measured with when asked for."""

import os


def effort(name: str, usual: int) -> int:
    """`HERDSMAN_CHAOS_KILLS=100` and so on."""
    return int(os.environ.get(f"HERDSMAN_CHAOS_{name}", usual))
