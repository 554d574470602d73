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

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import cast

import httpx

from herdsman.errors import CapacityUnavailable, HerdsmanError, ProviderRejected, ProviderUnavailable

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
BAD_REQUEST = 400
FORBIDDEN = 403
NOT_FOUND = 404
TIMED_OUT = 408
TOO_MANY = 429
SERVER_ERRORS = 500
TERMINATED = "TERMINATED"
SSH_PRIVATE_PORT = 22


class Unreadable(Exception):
    """The body is not what the API promises."""


@dataclass(frozen=True, slots=True)
class Answer:
    asked: str
    """The call, as a person would name it: its method and path."""
    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> object:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"it is no JSON but {self.kind}") from error

    @property
    def kind(self) -> str:
        return _one_line(self.headers.get("content-type", "a body of no known kind"), longest=80)

    @property
    def request_id(self) -> str:
        return _one_line(self.headers.get("x-request-id", "unknown"), longest=80)

    def problem(self) -> str | None:
        """What the API itself says is wrong; None when something in between has answered instead."""
        try:
            said = self.json()
        except Unreadable:
            return None
        fields = as_object(said)
        if fields is None or not isinstance(fields.get("detail"), str):
            return None
        errors = fields.get("errors")
        more = [str(each) for each in cast("list[object]", errors)] if isinstance(errors, list) else []
        return "; ".join([str(fields["detail"]), *more])

    def sentence(self, secrets: Sequence[str]) -> str:
        """One line for a person, with nothing in it that must stay secret."""
        said = self.problem()
        if not said:
            title = _TITLE.search(self.body[:4096].decode(errors="replace"))
            said = f"{self.kind} and not an answer of the API" + (f", titled {title[1]}" if title else "")
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                said = said.replace(secret, "***")
        return f"runpod answered {self.status} to {self.asked}: {_one_line(said)} (request {self.request_id})"

    def wait(self) -> timedelta | None:
        """How long we are asked to wait: for the longest of the windows that are used up."""
        after = self.headers.get("retry-after", "")
        used_up = _EXHAUSTED.findall(self.headers.get("ratelimit", ""))
        seconds = [
            int(each)
            for each in (
                *used_up,
                *([after] if (after.isascii() and after.isdecimal() and len(after) < 10) else []),
            )
        ]
        return min(timedelta(seconds=max(seconds)), LONGEST_WAIT) if seconds else None


def as_object(value: object) -> Mapping[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _one_line(text: str, longest: int = LONGEST_SAID) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text[: 2 * longest])
    line = " ".join(printable.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


class NotThere(ProviderRejected):
    """Runpod knows no such thing."""


class NotAllowed(ProviderRejected):
    """The key or the account may not do this."""


def refusal(
    answer: Answer, *, unclear: type[ProviderUnavailable], secrets: Sequence[str] = ()
) -> HerdsmanError:
    said, wait = answer.sentence(secrets), answer.wait()
    if answer.status == TOO_MANY:
        return ProviderUnavailable(said, retry_after=wait)
    problem = answer.problem()
    if problem is None or answer.status >= SERVER_ERRORS or answer.status == TIMED_OUT:
        return unclear(said, retry_after=wait)
    if answer.status == BAD_REQUEST:
        if any(phrase in problem.lower() for phrase in NO_CAPACITY):
            return CapacityUnavailable(said)
        # It is how a failure inside Runpod is passed on, and promises nothing about what was done before it.
        return unclear(said) if PASSING in problem.lower() else ProviderRejected(said)
    return {FORBIDDEN: NotAllowed, NOT_FOUND: NotThere}.get(answer.status, ProviderRejected)(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    id: str
    name: str
    status: str
    gpu_type: str | None
    gpu_count: int
    cost_per_hour: Decimal
    created_at: datetime | None
    ssh_ready: bool
    """Whether port 22 can be reached from outside."""
    volume_id: str | None = None
    """The network volume that it has."""

    @property
    def gone(self) -> bool:
        return self.status == TERMINATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    id: str
    name: str
    data_center: str | None
    size_gb: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    id: str
    price: Decimal | None
    """USD an hour in the cloud that was asked for; None where it is not told."""
    in_stock: bool


@dataclass(frozen=True, slots=True)
class Page:
    pods: tuple[Pod, ...]
    cursor: str | None
    """Where the next page begins; None on the last one."""


def read_pod(value: object) -> Pod:
    """A pod without an id, a name or a status is unreadable; everything else may be missing or odd."""
    fields = _object(value, "a pod")
    gpu = as_object(fields.get("gpu")) or {}
    gpu_type = gpu.get("id")
    mounts = as_object(fields.get("mounts")) or {}
    network = mounts.get("network")
    first = as_object(cast("list[object]", network)[0]) if isinstance(network, list) and network else None
    found = (first or {}).get("volumeId")
    return Pod(
        id=_text(fields, "id"),
        name=_text(fields, "name"),
        status=_text(fields, "status"),
        gpu_type=gpu_type if isinstance(gpu_type, str) else None,
        gpu_count=_count(gpu.get("count")),
        cost_per_hour=_cost(fields.get("cost")),
        created_at=_instant(fields.get("createdAt")),
        ssh_ready=_ssh_ready(fields),
        volume_id=found if isinstance(found, str) and found else None,
    )


def read_page(value: object, *, limit: int) -> Page:
    fields = _object(value, "a page of pods")
    pods = tuple(read_pod(each) for each in _list(fields, "pods"))
    return Page(pods, _next_cursor(fields, full=len(pods) == limit))


def read_volumes(value: object) -> tuple[Volume, ...]:
    fields = _object(value, "a list of volumes")
    found: list[Volume] = []
    for each in (_object(value, "a volume") for value in _list(fields, "networkVolumes")):
        place = each.get("dataCenter")
        found.append(
            Volume(
                id=_text(each, "id"),
                name=_text(each, "name"),
                data_center=place if isinstance(place, str) else None,
                size_gb=_count(each.get("size")),
            )
        )
    return tuple(found)


def read_gpu_types(value: object, *, cloud: str) -> tuple[GpuType, ...]:
    fields = _object(value, "a catalog of GPUs")
    found: list[GpuType] = []
    for each in (_object(value, "a GPU") for value in _list(fields, "gpus")):
        price = (as_object(each.get("price")) or {}).get(cloud.lower())
        found.append(
            GpuType(
                id=_text(each, "id"),
                price=None if price is None else _cost(price),
                in_stock=each.get("availability") != "NONE",
            )
        )
    return tuple(found)


def read_spent(value: object) -> Decimal:
    """What the pods of the account cost in the time that was asked for."""
    metadata = as_object(_object(value, "a bill").get("metadata")) or {}
    return _cost((as_object(metadata.get("totals")) or {}).get("totalAmount"))


def _next_cursor(fields: Mapping[str, object], *, full: bool) -> str | None:
    pagination = as_object(fields.get("pagination"))
    if pagination is None:
        # An older API sends everything at once and says nothing about pages; a page cut short looks like this.
        if full:
            raise Unreadable("the page is full and does not say whether there is another one")
        return None
    if pagination.get("hasNextPage") is False:
        return None
    cursor = pagination.get("nextCursor")
    if not isinstance(cursor, str) or not cursor:
        raise Unreadable("there is another page, but no way to it")
    return cursor


def _ssh_ready(fields: Mapping[str, object]) -> bool:
    runtime = as_object(fields.get("runtime")) or {}
    ports = runtime.get("ports")
    mapped = (
        [as_object(each) or {} for each in cast("list[object]", ports)] if isinstance(ports, list) else []
    )
    return any(each.get("private") == SSH_PRIVATE_PORT and bool(each.get("public")) for each in mapped)


def _object(value: object, what: str) -> Mapping[str, object]:
    fields = as_object(value)
    if fields is None:
        raise Unreadable(f"{what} is not an object")
    return fields


def _list(fields: Mapping[str, object], key: str) -> list[object]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise Unreadable(f"{key} is not a list")
    return cast("list[object]", value)


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise Unreadable(f"{key} is not a text")
    return value


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
