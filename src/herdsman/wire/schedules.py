"""Hours of the week, as people write them."""

from typing import Annotated

from pydantic import Field

from herdsman.core.schedule import Sizes, Window, parse_clock, parse_days, shown_clock, shown_days
from herdsman.wire.model import Reply, Request

Count = Annotated[int, Field(ge=0, le=64)]
Clock = Annotated[str, Field(max_length=5, examples=["08:30"])]


class SizesIn(Request):
    min: Count | None = Field(default=None, description="Least workers; without it, as at other times.")
    max: Count | None = Field(default=None, description="Most workers; without it, as at other times.")

    def sizes(self) -> Sizes:
        return Sizes(least=self.min, most=self.max)


class WindowIn(SizesIn):
    """From the one time of day to the other; one that ends before it begins ends on the day after."""

    days: Annotated[str, Field(max_length=64, examples=["mon-fri", "sat,sun"])] = "daily"
    begin: Clock = Field(alias="from")
    end: Clock = Field(alias="to", description="`24:00` is the end of the day.")
    timezone: Annotated[str, Field(max_length=64, examples=["Europe/Berlin"])] = "UTC"

    def window(self) -> Window:
        return Window(
            days=parse_days(self.days),
            begin=parse_clock("from", self.begin),
            end=parse_clock("to", self.end),
            zone=self.timezone,
            sizes=self.sizes(),
        )


class SizesOut(Reply):
    min: int | None = None
    max: int | None = None

    @staticmethod
    def of(sizes: Sizes) -> "SizesOut":
        return SizesOut(min=sizes.least, max=sizes.most)


class WindowOut(SizesOut):
    days: str
    begin: str = Field(alias="from")
    end: str = Field(alias="to")
    timezone: str

    @staticmethod
    def of(window: Window) -> "WindowOut":  # pyright: ignore[reportIncompatibleMethodOverride]  (a window is more)
        return WindowOut.model_validate(
            {
                "days": shown_days(window.days),
                "from": shown_clock(window.begin),
                "to": shown_clock(window.end),
                "timezone": window.zone,
                "min": window.sizes.least,
                "max": window.sizes.most,
            }
        )
