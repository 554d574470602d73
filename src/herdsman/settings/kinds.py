"""What a kind of value allows and how it may be shown; and the kinds that are numbers or switches."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, cast

from pydantic import BeforeValidator, Field

_MOST = 1_000_000_000
_TEN_YEARS_SEC = 315_360_000


@dataclass(frozen=True, slots=True)
class Kind:
    allowed: str
    """Completes "NAME must be ..."."""
    shown: Callable[[object], object]
    """The value as anyone may see it, in a form that JSON can hold."""
    secret: bool = False
    """It may also be given as `NAME_FILE`, the path of a file that holds it."""


@dataclass(frozen=True, slots=True)
class DefaultText:
    """Says in words what the default is, where that depends on the machine or on another setting."""

    text: str


def plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("true is not a number")  # noqa: TRY004  pydantic collects a ValueError only
    return value


_NUMBER = BeforeValidator(_no_switch)

Count = Annotated[int, _NUMBER, Field(ge=0, le=_MOST), Kind("a whole number from 0 to 1000000000", plain)]
Positive = Annotated[int, _NUMBER, Field(ge=1, le=_MOST), Kind("a whole number from 1 to 1000000000", plain)]
Port = Annotated[int, _NUMBER, Field(ge=0, le=65_535), Kind("a port from 0 to 65535", plain)]
Ratio = Annotated[
    float,
    _NUMBER,
    Field(gt=0, le=_MOST, allow_inf_nan=False),
    Kind("a number above 0, up to 1000000000", plain),
]
Share = Annotated[float, _NUMBER, Field(ge=0, le=1, allow_inf_nan=False), Kind("a number from 0 to 1", plain)]
Percent = Annotated[
    float, _NUMBER, Field(ge=0, le=100, allow_inf_nan=False), Kind("a number from 0 to 100", plain)
]
Seconds = Annotated[
    float,
    _NUMBER,
    Field(gt=0, le=_TEN_YEARS_SEC, allow_inf_nan=False),
    Kind("a number of seconds above 0, up to ten years", plain),
]
SecondsOrZero = Annotated[
    float,
    _NUMBER,
    Field(ge=0, le=_TEN_YEARS_SEC, allow_inf_nan=False),
    Kind("a number of seconds from 0 to ten years", plain),
]
Milliseconds = Annotated[
    int, _NUMBER, Field(ge=1, le=_MOST), Kind("a whole number of milliseconds from 1 to 1000000000", plain)
]
Minutes = Annotated[
    float,
    _NUMBER,
    Field(gt=0, le=_TEN_YEARS_SEC / 60, allow_inf_nan=False),
    Kind("a number of minutes above 0, up to ten years", plain),
]
Days = Annotated[
    int, _NUMBER, Field(ge=0, le=36_500), Kind("a whole number of days, from 0 (for ever) to 36500", plain)
]
DaysOfAWeek = Annotated[int, _NUMBER, Field(ge=0, le=7), Kind("a whole number of days from 0 to 7", plain)]
Money = Annotated[
    float | None,
    _NUMBER,
    Field(ge=0, le=_MOST, allow_inf_nan=False),
    Kind("an amount of US dollars from 0 to 1000000000", plain),
]
Switch = Annotated[bool, Kind("true or false", plain)]
