"""The environment of a pod: what a worker needs, and never a secret of the control plane."""

import re
from collections.abc import Mapping

from pydantic import SecretStr

from herdsman.core.errors import InvalidSettings, ProviderRejected

MOST_VARIABLES = 50

_OURS_ALONE = re.compile(r"SERVICE_ROLE|RUNPOD_API_KEY|DATABASE_URL|ADMIN_API_KEY", re.IGNORECASE)


def check_extras(extras: Mapping[str, SecretStr], key: SecretStr) -> None:
    """Refuse to start with variables that no pod may have."""
    shown = {name: value.get_secret_value() for name, value in extras.items()}
    problem = _problem(shown, key)
    if problem is not None:
        raise InvalidSettings(problem)


def pod_environment(
    asked: Mapping[str, str], extras: Mapping[str, SecretStr], key: SecretStr
) -> dict[str, str]:
    """All variables of one pod. What the worker was asked to have wins over an extra of the same name."""
    shown = {name: value.get_secret_value() for name, value in extras.items()}
    together = {**shown, **asked}
    problem = _problem(together, key)
    if problem is not None:
        raise ProviderRejected(problem)
    return together


def _problem(variables: Mapping[str, str], key: SecretStr) -> str | None:
    if len(variables) > MOST_VARIABLES:
        return f"a pod would get {len(variables)} variables, Runpod takes {MOST_VARIABLES} at most"
    for name, value in variables.items():
        if _OURS_ALONE.search(name):
            return f"a pod would get {name}, which belongs to the control plane alone"
        if key.get_secret_value() in value:
            return f"a pod would get the key of the Runpod account as {name}"
    return None
