"""What a worker has to have loaded, as environment variables: how its machine, and its handlers, are told."""

from collections.abc import Mapping

from herdsman.core.errors import InvalidRequest
from herdsman.core.request import check_model
from herdsman.core.work import Load

MODEL = "HERDSMAN_MODEL"
ADAPTER = "HERDSMAN_ADAPTER"
VARIANT = "HERDSMAN_VARIANT"
REVISION = "HERDSMAN_REVISION"
PRELOAD = "HERDSMAN_PRELOAD"
VARIABLES = (MODEL, ADAPTER, VARIANT, REVISION, PRELOAD)
NOTHING = Load(revision=0)
"""For a pool that names no model."""


def to_variables(load: Load) -> dict[str, str]:
    """Only those that say something."""
    given = {
        MODEL: load.model,
        ADAPTER: load.adapter,
        VARIANT: load.variant,
        REVISION: str(load.revision) if load.revision else None,
        PRELOAD: ",".join(load.preload),
    }
    return {name: value for name, value in given.items() if value}


def from_variables(given: Mapping[str, str]) -> Load:
    """`InvalidRequest` names the variable that cannot be used."""
    revision = given.get(REVISION) or "0"
    if not (revision.isascii() and revision.isdecimal()):
        raise InvalidRequest(f"{REVISION} is {revision!r}: it must be a whole number")
    preload = tuple(part.strip() for part in given.get(PRELOAD, "").split(",") if part.strip())
    load = Load(
        revision=int(revision),
        model=given.get(MODEL) or None,
        adapter=given.get(ADAPTER) or None,
        variant=given.get(VARIANT) or None,
        preload=preload,
    )
    for field, value in (
        (MODEL, load.model),
        (ADAPTER, load.adapter),
        *((PRELOAD, each) for each in preload),
    ):
        if value is not None:
            check_model(field, value)
    return load
