"""What processes that we start may see of our environment: nothing of ours, and nothing that looks like a secret."""

import os
import re
import socket
from collections.abc import Mapping

from herdsman.core.loading import VARIABLES
from herdsman.settings.model import Settings
from herdsman.settings.names import ACCEPTED

_ODD = re.compile(r"[^A-Za-z0-9._:@+-]", re.ASCII)
_OURS = re.compile(r"HERDSMAN", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIAL|PRIVATE_?KEY|API_?KEY|ACCESS_?KEY|SERVICE_ROLE|DATABASE_URL|DSN$",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def harmless_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    given = os.environ if env is None else env
    return {name: value for name, value in given.items() if not _hidden(name, value)}


def visible_gpus(env: Mapping[str, str] | None = None) -> tuple[str, ...] | None:
    """The GPUs that CUDA would show this process; None for all."""
    named = (os.environ if env is None else env).get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return None
    return tuple(part.strip() for part in named.split(",") if part.strip())


def wanted_models(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the pool of this worker wants to be loaded, as whoever started the worker wrote it down."""
    given = os.environ if env is None else env
    return {name: given[name] for name in VARIABLES if name in given}


def this_machine() -> str:
    """Its name, in letters that an id may have."""
    return _ODD.sub("-", socket.gethostname()).strip("-._:@+")[:128] or "machine"


def instance_name(settings: Settings) -> str:
    """What this process is called in logs."""
    return settings.logs.orchestrator_instance_id or f"{this_machine()}:{os.getpid()}"


def push_name(settings: Settings) -> str:
    """The same after a restart, so that its metrics at a push gateway are replaced and do not pile up."""
    return settings.logs.orchestrator_instance_id or this_machine()


def _hidden(name: str, value: str) -> bool:
    ours = name in ACCEPTED or _OURS.search(name) is not None
    return ours or _SECRET_NAME.search(name) is not None or _PASSWORD_IN_URL.search(value) is not None
