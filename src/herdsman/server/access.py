"""Who may call what: one line for each route. What is not here is refused."""

from collections.abc import Mapping

from herdsman.access.rules import Role
from herdsman.errors import Overloaded

Line = tuple[str, str]
"""A method and the path template of a route."""

_ADMIN = frozenset({Role.ADMIN})
_OPERATORS = frozenset({Role.ADMIN, Role.OPERATOR})
_SUBMITTERS = frozenset({Role.ADMIN, Role.OPERATOR, Role.SUBMITTER})
_VIEWERS = frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER})
_PEOPLE = _SUBMITTERS | _VIEWERS
_WATCHERS = _VIEWERS | {Role.METRICS}
_WORKERS = frozenset({Role.WORKER})

OPEN: frozenset[Line] = frozenset(
    {("GET", "/health/live"), ("GET", "/"), ("GET", "/assets/{name}"), ("GET", "/assets/{folder}/{name}")}
)
"""Needs no token, and says nothing but that the process runs (X1) and what its pages look like when they are empty."""

MATRIX: dict[Line, frozenset[Role]] = {
    ("POST", "/jobs/submit"): _SUBMITTERS,
    ("POST", "/jobs/submit/batch"): _SUBMITTERS,
    ("GET", "/jobs"): _PEOPLE,
    ("GET", "/jobs/{job_id}"): _PEOPLE,
    ("GET", "/jobs/{job_id}/result"): _PEOPLE,
    ("GET", "/jobs/{job_id}/files/{name}"): _PEOPLE,
    ("GET", "/jobs/{job_id}/attempts"): _PEOPLE,
    ("GET", "/jobs/{job_id}/events"): _PEOPLE,
    ("GET", "/jobs/{job_id}/logs"): _PEOPLE,
    ("GET", "/jobs/{job_id}/eta"): _PEOPLE,
    ("GET", "/jobs/{job_id}/timeline"): _PEOPLE,
    ("POST", "/jobs/cancel"): _SUBMITTERS,
    ("POST", "/jobs/retry"): _SUBMITTERS,
    ("POST", "/jobs/{job_id}/cancel"): _SUBMITTERS,
    ("POST", "/jobs/{job_id}/retry"): _SUBMITTERS,
    ("GET", "/workers"): _VIEWERS,
    ("GET", "/workers/pool"): _VIEWERS,
    ("POST", "/workers/pool"): _OPERATORS,
    ("GET", "/workers/pool/{pool_id}"): _VIEWERS,
    ("DELETE", "/workers/pool/{pool_id}"): _OPERATORS,
    ("POST", "/workers/pool/{pool_id}/heartbeat"): _OPERATORS,
    ("POST", "/workers/pool/{pool_id}/drain"): _OPERATORS,
    ("POST", "/workers/pool/{pool_id}/evict"): _OPERATORS,
    ("POST", "/workers/pool/{pool_id}/swap"): _OPERATORS,
    ("POST", "/workers/pool/{pool_id}/scale"): _OPERATORS,
    ("GET", "/workers/{worker_id}"): _VIEWERS,
    ("POST", "/workers/{worker_id}/drain"): _OPERATORS,
    ("GET", "/overview"): _VIEWERS,
    ("GET", "/fleet"): _VIEWERS,
    ("GET", "/why/{kind}/{id}"): _PEOPLE,
    ("GET", "/decisions"): _VIEWERS,
    ("GET", "/decisions/shadow"): _VIEWERS,
    ("GET", "/decisions/{cycle}"): _VIEWERS,
    ("GET", "/failures"): _VIEWERS,
    ("POST", "/failures/requeue"): _OPERATORS,
    ("GET", "/cost"): _VIEWERS,
    ("GET", "/events"): _VIEWERS,
    ("POST", "/workers/register"): _OPERATORS | {Role.ENROLLER, Role.BOOTSTRAP, Role.WORKER},
    ("POST", "/workers/{worker_id}/heartbeat"): _WORKERS,
    ("POST", "/workers/{worker_id}/leave"): _WORKERS,
    ("GET", "/workers/{worker_id}/claims"): _WORKERS,
    ("POST", "/jobs/claim"): _WORKERS,
    ("POST", "/jobs/start"): _WORKERS,
    ("POST", "/jobs/finish"): _WORKERS,
    ("POST", "/jobs/{job_id}/start"): _WORKERS,
    ("POST", "/jobs/{job_id}/progress"): _WORKERS,
    ("POST", "/jobs/{job_id}/complete"): _WORKERS,
    ("POST", "/jobs/{job_id}/fail"): _WORKERS,
    ("POST", "/jobs/{job_id}/release"): _WORKERS,
    ("GET", "/jobs/{job_id}/checkpoint"): _WORKERS,
    ("PUT", "/jobs/{job_id}/checkpoint"): _WORKERS,
    ("PUT", "/jobs/{job_id}/service"): _WORKERS,
    ("GET", "/leases"): _PEOPLE,
    ("POST", "/leases"): _SUBMITTERS,
    ("POST", "/leases/{token}/heartbeat"): _SUBMITTERS,
    ("POST", "/leases/{token}/release"): _SUBMITTERS,
    ("POST", "/leases/{token}/revoke"): _OPERATORS,
    ("GET", "/gpus"): _VIEWERS,
    ("POST", "/gpus/{uuid}/clear"): _OPERATORS,
    ("POST", "/nodes/{node_id}/gpus"): _OPERATORS,
    ("POST", "/control/reconcile"): _OPERATORS,
    ("POST", "/control/cycle"): _OPERATORS,
    ("POST", "/control/pause"): _OPERATORS,
    ("POST", "/control/resume"): _OPERATORS,
    ("POST", "/control/drain"): _OPERATORS,
    ("GET", "/control/holds"): _VIEWERS,
    ("POST", "/control/evict_pool"): _OPERATORS,
    ("GET", "/control/policy"): _VIEWERS,
    ("PUT", "/control/policy"): _OPERATORS,
    ("GET", "/control/policy/history"): _VIEWERS,
    ("GET", "/control/policy/{version}"): _VIEWERS,
    ("GET", "/leader"): _VIEWERS,
    ("GET", "/me"): frozenset(Role),
    ("GET", "/settings"): _OPERATORS,
    ("GET", "/health"): _WATCHERS,
    ("GET", "/health/live"): frozenset(Role),
    ("GET", "/health/ready"): _WATCHERS,
    ("GET", "/metrics"): _WATCHERS,
    ("GET", "/tokens"): _ADMIN,
    ("POST", "/tokens"): _ADMIN,
    ("DELETE", "/tokens/{token_id}"): _ADMIN,
    ("GET", "/openapi.json"): _VIEWERS,
    ("GET", "/"): frozenset(Role),
    ("GET", "/assets/{name}"): frozenset(Role),
    ("GET", "/assets/{folder}/{name}"): frozenset(Role),
}


def require_harmless(line: Line) -> None:
    """In safe mode people only look; what workers and holders of leases have begun, they may end."""
    method, path = line
    begun = Role.WORKER in MATRIX[line] or path in _KEEPING
    if method != "GET" and not begun:
        raise Overloaded(
            f"safe mode is on (SAFE_MODE): {method} {path} would change something, and only workers may;"
            " it works again when the server is started without it",
            code="safe-mode",
        )


_KEEPING = frozenset({"/leases/{token}/heartbeat", "/leases/{token}/release"})


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
    return tuple(verb for verb, line in VERBS.items() if role in MATRIX[line] and (line[0] == "GET" or not safe_mode))
