"""What has really happened, whatever the answers said."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import cast

from herdsman.testing.fakes.runpod.cloud import Cloud

HIDDEN = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """One pod, from its first second to its last."""

    id: str
    name: str
    foreign: bool
    gpu_type: str | None
    status: str
    alive: bool
    lives: tuple[tuple[datetime, datetime | None], ...]
    """From when to when it was alive, and billed."""
    cost: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request and what became of it; the values of variables are hidden."""

    id: str
    """What the answer carries as `x-request-id`."""
    at: datetime
    method: str
    path: str
    operation: str
    name: str | None
    """Of the pod that it was about."""
    status: int | None
    """None if the connection was cut before an answer."""
    fault: str | None
    body: Mapping[str, object]


class Ledger:
    """The ground truth. Foreign pods are in it, but count for nothing."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.requests: list[RequestRecord] = []

    @property
    def pods(self) -> tuple[PodRecord, ...]:
        """Every pod there has ever been, the oldest first."""
        with self._cloud.lock:
            self._cloud.settle()
            timeline = self._cloud.timeline
            return tuple(
                PodRecord(
                    id=pod.id,
                    name=pod.name,
                    foreign=pod.foreign,
                    gpu_type=pod.gpu_type,
                    status=pod.status.value,
                    alive=pod.alive,
                    lives=tuple(
                        (timeline.instant(start), None if end is None else timeline.instant(end))
                        for start, end in pod.lives
                    ),
                    cost=pod.cost(timeline.now()),
                )
                for pod in self._cloud.ever.values()
            )

    @property
    def alive(self) -> tuple[PodRecord, ...]:
        return tuple(pod for pod in self.pods if pod.alive and not pod.foreign)

    @property
    def most_alive(self) -> int:
        """How many of ours were alive at once, at the worst moment."""
        return self._cloud.most_alive

    @property
    def cost(self) -> Decimal:
        return sum((pod.cost for pod in self.pods if not pod.foreign), Decimal(0))

    def named(self, name: str) -> tuple[PodRecord, ...]:
        return tuple(pod for pod in self.pods if pod.name == name)

    def creates(self, name: str) -> tuple[RequestRecord, ...]:
        """Every attempt to create a pod of that name, in order."""
        return tuple(each for each in self.requests if each.operation == "create" and each.name == name)

    def shown(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {
            "pods": [asdict(pod) for pod in self.pods],
            "alive": len(self.alive),
            "most_alive": self.most_alive,
            "cost": self.cost,
            "requests": [asdict(each) for each in self.requests],
        }


def redacted(body: object) -> dict[str, object]:
    """The body of a request as anyone may see it; empty if it is no object."""
    fields = dict(cast("dict[str, object]", body)) if isinstance(body, dict) else {}
    if isinstance(fields.get("env"), dict):
        fields["env"] = dict.fromkeys(cast("dict[str, object]", fields["env"]), HIDDEN)
    return fields
