"""Runpod's answers, read without trusting them: pods, volumes, prices, and refusals.

Every refusal of Runpod, translated once into who must act.

    400 that speaks of capacity            CapacityUnavailable   the next candidate, or the next cycle
    400 "something went wrong"             unclear
    other 400, 401, 402, 409, 410, 422     ProviderRejected      a person
    403 from the API                       NotAllowed            a person; another GPU type may be allowed
    404 from the API                       NotThere              the verb decides: for an end it is success
    429                                    ProviderUnavailable   the next cycle, after the wait it asks for
    408, 5xx, whatever is not the API's    unclear

*Unclear* is `SpawnUnknown` for a create, which may have happened, and `ProviderUnavailable` for the rest.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeVar, cast

import httpx
from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from herdsman.errors import CapacityUnavailable, HerdsmanError, ProviderRejected, ProviderUnavailable
from herdsman.text import one_line

LONGEST_SAID = 400
LONGEST_WAIT = timedelta(days=1)
SHORTEST_SECRET = 8

_TITLE = re.compile(r"<title[^>]*>([^<]{1,200})", re.IGNORECASE)
_EXHAUSTED = re.compile(r";\s*r=0\s*;\s*t=(\d{1,9})")
NO_CAPACITY = (
    "no longer any instances available",
    "does not have the resources",
    "try a different machine",
    "not enough free gpus on the host machine",
    "enough disk space",
)
PASSING = "something went wrong"
TERMINATED = "TERMINATED"
SSH_PRIVATE_PORT = 22


class _Read(BaseModel):
    """A part of an answer. A field that it must have is unreadable when it is missing or odd; any other is left out."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", validate_by_name=True)


Read = TypeVar("Read", bound=_Read)


class Problem(_Read):
    """What the API itself says is wrong."""

    detail: str
    errors: object = None


@dataclass(frozen=True, slots=True)
class Answer:
    asked: str
    """The call, as a person would name it: its method and path."""
    status: int
    headers: httpx.Headers
    body: bytes

    def read(self, kind: type[Read], unclear: type[ProviderUnavailable] = ProviderUnavailable) -> Read:
        try:
            return kind.model_validate_json(self.body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            wrong = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first["loc"] else self.kind
            raise unclear(
                f"runpod's answer to {self.asked} makes no sense: {one_line(wrong, LONGEST_SAID)} (request {self.request_id})"
            ) from None

    @property
    def kind(self) -> str:
        return one_line(self.headers.get("content-type", "a body of no known kind"), 80)

    @property
    def request_id(self) -> str:
        return one_line(self.headers.get("x-request-id", "unknown"), 80)

    def problem(self) -> str | None:
        """None when something in between has answered instead of the API."""
        try:
            said = Problem.model_validate_json(self.body)
        except ValidationError:
            return None
        more = cast("list[object]", said.errors) if isinstance(said.errors, list) else []
        return "; ".join([said.detail, *map(str, more)])

    def sentence(self, secrets: Sequence[str]) -> str:
        """One line for a person, with nothing in it that must stay secret."""
        said = self.problem()
        if not said:
            title = _TITLE.search(self.body[:4096].decode(errors="replace"))
            said = f"{self.kind} and not an answer of the API" + (f", titled {title[1]}" if title else "")
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                said = said.replace(secret, "***")
        return (
            f"runpod answered {self.status} to {self.asked}: {one_line(said, LONGEST_SAID)} (request {self.request_id})"
        )

    def wait(self) -> timedelta | None:
        """How long we are asked to wait: for the longest of the windows that are used up."""
        after = self.headers.get("retry-after", "")
        asked = _EXHAUSTED.findall(self.headers.get("ratelimit", ""))
        if after.isascii() and after.isdecimal() and len(after) < 10:
            asked.append(after)
        return min(timedelta(seconds=max(map(int, asked))), LONGEST_WAIT) if asked else None


class NotThere(ProviderRejected):
    """Runpod knows no such thing."""


class NotAllowed(ProviderRejected):
    """The key or the account may not do this."""


def refusal(answer: Answer, *, unclear: type[ProviderUnavailable], secrets: Sequence[str] = ()) -> HerdsmanError:
    said, wait = answer.sentence(secrets), answer.wait()
    if answer.status == 429:
        return ProviderUnavailable(said, retry_after=wait)
    problem = answer.problem()
    if problem is None or answer.status >= 500 or answer.status == 408:
        return unclear(said, retry_after=wait)
    if answer.status == 400:
        if any(phrase in problem.lower() for phrase in NO_CAPACITY):
            return CapacityUnavailable(said)
        # It is how a failure inside Runpod is passed on, and promises nothing about what was done before it.
        return unclear(said) if PASSING in problem.lower() else ProviderRejected(said)
    return {403: NotAllowed, 404: NotThere}.get(answer.status, ProviderRejected)(said)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _cost(value: object) -> Decimal:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6
    return Decimal(str(value)) if known else Decimal(0)


def _instant(value: object) -> datetime | None:
    try:
        instant = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return instant.astimezone(UTC) if instant.tzinfo is not None else None


def _ssh_ready(ports: object) -> bool:
    mapped = cast("list[Any]", ports) if isinstance(ports, list) else []
    known = [cast("dict[str, object]", each) for each in mapped if isinstance(each, dict)]
    return any(each.get("private") == SSH_PRIVATE_PORT and bool(each.get("public")) for each in known)


Text = Annotated[str, Field(min_length=1)]
TextOrNone = Annotated[str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)]
Count = Annotated[int, BeforeValidator(_count)]
Cost = Annotated[Decimal, BeforeValidator(_cost)]


class Pod(_Read):
    id: Text
    name: Text
    status: Text
    gpu_type: TextOrNone = Field(default=None, validation_alias=AliasPath("gpu", "id"))
    gpu_count: Count = Field(default=0, validation_alias=AliasPath("gpu", "count"))
    cost_per_hour: Cost = Field(default=Decimal(0), validation_alias="cost")
    created_at: Annotated[datetime | None, BeforeValidator(_instant)] = Field(
        default=None, validation_alias="createdAt"
    )
    ssh_ready: Annotated[bool, BeforeValidator(_ssh_ready)] = Field(
        default=False, validation_alias=AliasPath("runtime", "ports")
    )
    """Whether port 22 can be reached from outside."""
    volume_id: TextOrNone = Field(default=None, validation_alias=AliasPath("mounts", "network", 0, "volumeId"))
    """The network volume that it has."""

    @property
    def gone(self) -> bool:
        return self.status == TERMINATED


class Page(_Read):
    pods: tuple[Pod, ...]
    pagination: dict[str, object] | None = None
    """An older API sends everything at once and says nothing about pages."""


class Volume(_Read):
    id: Text
    name: Text
    data_center: TextOrNone = Field(default=None, validation_alias="dataCenter")
    size_gb: Count = Field(default=0, validation_alias="size")


class Volumes(_Read):
    volumes: tuple[Volume, ...] = Field(validation_alias="networkVolumes")


class GpuType(_Read):
    id: Text
    price: object = None
    """By the name of the cloud in small letters: USD an hour."""
    availability: object = None

    @property
    def in_stock(self) -> bool:
        return self.availability != "NONE"

    def price_in(self, cloud: str) -> Decimal | None:
        """None where it is not told."""
        price = cast("dict[str, object]", self.price).get(cloud.lower()) if isinstance(self.price, dict) else None
        return None if price is None else _cost(price)


class GpuTypes(_Read):
    gpus: tuple[GpuType, ...]


class Bill(_Read):
    """What the pods of the account cost in the time that was asked for."""

    total: Cost = Field(default=Decimal(0), validation_alias=AliasPath("metadata", "totals", "totalAmount"))
