"""The functions of the tasks face, by the names that people type; inner ones do the work for several of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Dialect

from herdsman.store import task_face_steps as steps
from herdsman.store.task_face_words import VARIABLES, Words

MARK = "herdsman"
"""How the comment of a routine begins, so that ours can be told from one of the same name."""

TTL_S = steps.POLICY.claim_ttl.total_seconds()
LONGEST_TTL_S = 3600
MOST_LISTED = 1000
"""The longest list of tasks that one call gives."""

INNER: Mapping[str, tuple[tuple[str, ...], str, Callable[[Words, Dialect], str]]] = {
    "task_face_end": (
        ("p_job name", "p_token whole", "p_kind name", "p_error text", "p_actor name"),
        "name",
        steps.end,
    ),
    "task_face_claim": (("p_worker name", "p_ttl real"), "name", steps.claim),
    "task_face_complete": (("p_job name", "p_token whole", "p_result text"), "name", steps.complete),
    "task_face_fail": (("p_job name", "p_token whole", "p_error text"), "name", steps.fail),
    "task_face_beat": (
        ("p_worker name", "p_total real", "p_used real", "p_ttl real"),
        "truth",
        steps.beat,
    ),
    "task_face_reset": (("p_worker name",), "whole", steps.reset),
}

WORKER_FUNCTIONS = (
    "func_claim_available_task",
    "claim_task",
    "func_update_worker_heartbeat",
    "mark_task_complete",
    "func_mark_task_complete",
    "mark_task_failed",
    "func_mark_task_failed",
)
"""What a worker may call; the others are for people and for the control plane."""

PUBLIC = (*WORKER_FUNCTIONS, "func_reset_orphaned_tasks", "func_get_tasks_by_status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Routine:
    name: str
    kind: str
    """FUNCTION or PROCEDURE."""
    head: str
    """Parameters and result: a routine whose head has changed is made anew, not replaced."""
    body: str

    @property
    def comment(self) -> str:
        return f"{self.comment_of_head} {_digest(self.body)}"

    @property
    def comment_of_head(self) -> str:
        return f"{MARK} {_digest(self.kind + self.head)}"


def declared(say: Words, body: str) -> str:
    """The variables that a body uses."""
    used = {name: kind for name, kind in VARIABLES.items() if f"v_{name}" in body}
    return " ".join(f"DECLARE v_{name} {say.types[kind]};" for name, kind in used.items())


def parameters(say: Words, names: tuple[str, ...]) -> str:
    pairs = (name.split() for name in names)
    return ", ".join(f"{name} {say.types[kind]}" for name, kind in pairs)


def one_line(body: str) -> str:
    """Nothing that a database might show differently from what it was given."""
    return " ".join(body.split())


def _digest(said: str) -> str:
    return sha256(said.encode()).hexdigest()[:12]
