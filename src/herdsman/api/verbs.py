"""What a role may do, in the words of a page that offers it: each stands for a line of the table of rights."""

from collections.abc import Mapping

from herdsman.api.access import MATRIX, Line
from herdsman.core.access import Role

VERBS: Mapping[str, Line] = {
    "look": ("GET", "/overview"),
    "jobs": ("GET", "/jobs"),
    "submit": ("POST", "/jobs/submit"),
    "cancel": ("POST", "/jobs/cancel"),
    "retry": ("POST", "/jobs/retry"),
    "requeue": ("POST", "/failures/requeue"),
    "lease": ("POST", "/leases"),
    "revoke": ("POST", "/leases/{token}/revoke"),
    "drain": ("POST", "/workers/{worker_id}/drain"),
    "pause": ("POST", "/control/pause"),
    "cycle": ("POST", "/control/cycle"),
    "pools": ("POST", "/workers/pool"),
    "policy": ("PUT", "/control/policy"),
    "settings": ("GET", "/settings"),
    "tokens": ("POST", "/tokens"),
}


def verbs(role: Role, *, safe_mode: bool = False) -> tuple[str, ...]:
    """In safe mode people only look."""
    return tuple(
        verb for verb, line in VERBS.items() if role in MATRIX[line] and (line[0] == "GET" or not safe_mode)
    )
