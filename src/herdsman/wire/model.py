"""The two kinds of bodies: what we are sent is checked strictly, what we send may grow."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from herdsman.core.request import MODEL, NAME

VERSION_HEADER = "herdsman-version"
"""Comes with every answer."""


class Request(BaseModel):
    """A word with a spelling mistake in it must not be taken for one that was left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


class Reply(BaseModel):
    """An older client goes on when a newer server says more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def name(longest: int) -> FieldInfo:
    """A text that can be the name of something. Only described here: `core.request` refuses it, with better words."""
    extra: JsonDict = {"pattern": f"^{NAME.pattern}$"}
    found: FieldInfo = Field(max_length=longest, json_schema_extra=extra)
    return found


def model_name() -> FieldInfo:
    """The name of a model or an adapter: as other names, with slashes."""
    found: FieldInfo = Field(max_length=255, json_schema_extra={"pattern": f"^{MODEL.pattern}$"})
    return found


Name = Annotated[str, Field(min_length=1, max_length=255)]
Duration = Annotated[float, Field(gt=0, le=31_536_000, description="Seconds.")]
