"""Runpod's REST API v2: one method per call, each asked once and never again by itself."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import TypeVar

from herdsman.core.errors import ProviderRejected, ProviderUnavailable, SpawnUnknown
from herdsman.providers.runpod.answers import Answer, Unreadable
from herdsman.providers.runpod.errors import NotThere
from herdsman.providers.runpod.events import log_lines
from herdsman.providers.runpod.resources import (
    GpuType,
    Pod,
    Volume,
    read_gpu_types,
    read_page,
    read_pod,
    read_spent,
    read_volumes,
)
from herdsman.providers.runpod.wire import Wire

PAGE = 1000
MOST_PAGES = 100
MOST_LOG_LINES = 5000
LOG_SILENCE = timedelta(seconds=2)

T = TypeVar("T")

# An empty id, or one that is a path, would make the call mean something else.
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)


class RunpodApi:
    def __init__(self, wire: Wire, *, log_silence: timedelta = LOG_SILENCE) -> None:
        self._wire = wire
        self._log_silence = log_silence

    def close(self) -> None:
        self._wire.close()

    def create_pod(self, body: Mapping[str, object], *, secrets: Sequence[str] = ()) -> Pod:
        answer = self._wire.ask("POST", "/pods", body=body, unclear=SpawnUnknown, secrets=secrets)
        return _understood(answer, read_pod, unclear=SpawnUnknown)

    def list_pods(self) -> list[Pod]:
        """All of them, page by page. A page that is missing or broken makes the whole an error."""
        found: dict[str, Pod] = {}
        for pods in self._pages():
            # A pod that is created meanwhile pushes others onto the next page, where they come again.
            found.update({pod.id: pod for pod in pods})
        return list(found.values())

    def get_pod(self, pod_id: str) -> Pod | None:
        try:
            answer = self._wire.ask("GET", _path(pod_id))
        except NotThere:
            return None
        return _understood(answer, read_pod)

    def delete_pod(self, pod_id: str) -> None:
        """Also succeeds where there is no such pod any more."""
        with suppress(NotThere):
            self._wire.ask("DELETE", _path(pod_id))

    def list_volumes(self) -> tuple[Volume, ...]:
        return _understood(self._wire.ask("GET", "/network-volumes"), read_volumes)

    def resize_volume(self, volume_id: str, size_gb: int) -> None:
        if not _ID.fullmatch(volume_id):
            raise ProviderRejected(f"{volume_id[:100]!r} is not the id of a volume")
        self._wire.ask("PATCH", f"/network-volumes/{volume_id}", body={"size": size_gb})

    def list_gpu_types(self, cloud: str) -> tuple[GpuType, ...]:
        """What there is to rent, and whether some are left now: a hint, and no promise."""
        params = {"include": "AVAILABILITY", "product": "POD", "count": "1", "cloud": cloud}
        answer = self._wire.ask("GET", "/catalog/gpus", params=params)
        return _understood(answer, partial(read_gpu_types, cloud=cloud))

    def spent_lately(self) -> Decimal:
        """USD of the last day; it lags behind by about an hour."""
        params = {"bucketSize": "hour", "lastN": "24"}
        return _understood(self._wire.ask("GET", "/billing/pods", params=params), read_spent)

    def tail_logs(self, pod_id: str, lines: int) -> list[str]:
        """The last lines. The stream stays open for more, so it is left once they are here, or it is silent."""
        wanted = min(lines, MOST_LOG_LINES)
        if wanted <= 0:
            return []
        path, params = f"{_path(pod_id)}/logs", {"tail": str(wanted)}
        try:
            with self._wire.stream(path, params, silence=self._log_silence) as chunks:
                return list(islice(log_lines(chunks), wanted))
        except NotThere:
            return []

    def _pages(self) -> Iterator[tuple[Pod, ...]]:
        seen: set[str | None] = set()
        cursor: str | None = None
        while len(seen) < MOST_PAGES and cursor not in seen:
            seen.add(cursor)
            params = {"limit": str(PAGE)} | ({} if cursor is None else {"cursor": cursor})
            page = _understood(self._wire.ask("GET", "/pods", params=params), partial(read_page, limit=PAGE))
            yield page.pods
            if page.cursor is None:
                return
            cursor = page.cursor
        raise ProviderUnavailable(f"runpod's list of pods does not end after {len(seen)} pages")


def _path(pod_id: str) -> str:
    if not _ID.fullmatch(pod_id):
        raise ProviderRejected(f"{pod_id[:100]!r} is not the id of a pod")
    return f"/pods/{pod_id}"


def _understood(
    answer: Answer,
    read: Callable[[object], T],
    *,
    unclear: type[ProviderUnavailable] = ProviderUnavailable,
) -> T:
    try:
        return read(answer.json())
    except Unreadable as error:
        raise unclear(
            f"runpod's answer to {answer.asked} makes no sense: {error} (request {answer.request_id})"
        ) from error
