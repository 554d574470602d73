"""The two kinds of bodies: what we are sent is checked strictly, what we send may grow.

A body has the field names of the value in the core that it stands for, so that neither is copied by hand. Only two
things are spelled otherwise in JSON: a duration is a number of seconds, `timeout_seconds` for `timeout`, and a `state`
is a `status`.
"""

from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AliasChoices, AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from herdsman.core.request import LONGEST, MODEL, NAME

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

VERSION_HEADER = "herdsman-version"
"""Comes with every answer."""
_SECONDS = "_seconds"


class Request(BaseModel):
    """A word with a spelling mistake in it must not be taken for one that was left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


def _or_as_in_core(field: str) -> str | AliasChoices:
    other = field.removesuffix(_SECONDS) if field.endswith(_SECONDS) else field.replace("status", "state")
    return field if other == field else AliasChoices(field, other)


class Reply(BaseModel):
    """An older client goes on when a newer server says more."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        from_attributes=True,
        alias_generator=AliasGenerator(validation_alias=_or_as_in_core),
    )

    @classmethod
    def of(cls, value: Any) -> Self:
        """The reply that shows a value of the core."""
        return cls.model_validate(value)


def core_fields(body: BaseModel, *without: str) -> dict[str, Any]:
    """The fields of a body as the core names and measures them: `timeout_seconds` is the `timedelta` `timeout`."""
    return {
        name.removesuffix(_SECONDS): span(value) if name.endswith(_SECONDS) else value
        for name, value in body
        if name not in without
    }


def values_of(*parts: "DataclassInstance") -> dict[str, Any]:
    """The fields of some values of the core as one; the later part wins."""
    return {each.name: getattr(part, each.name) for part in parts for each in fields(part)}


def span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


def name(field: str) -> FieldInfo:
    """A text that can be the name of something. Only described here: `core.request` refuses it, with better words."""
    extra: JsonDict = {"pattern": f"^{NAME.pattern}$"}
    found: FieldInfo = Field(max_length=LONGEST[field], json_schema_extra=extra)
    return found


def model_name() -> FieldInfo:
    """The name of a model or an adapter: as other names, with slashes."""
    found: FieldInfo = Field(max_length=LONGEST["model"], json_schema_extra={"pattern": f"^{MODEL.pattern}$"})
    return found


Name = Annotated[str, Field(min_length=1, max_length=255)]
Duration = Annotated[float, Field(gt=0, le=31_536_000, description="Seconds.")]
Seconds = Annotated[float, BeforeValidator(_seconds)]
"""Of a reply: a duration of the core."""
