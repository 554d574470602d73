"""Asks ComfyUI about a job, in an order of looks that cannot miss one which ends meanwhile."""

from datetime import timedelta

from herdsman.connectors.comfyui.api import HAS_JOBS, Api
from herdsman.connectors.comfyui.verdict import find_in_history, find_in_queue, judge
from herdsman.connectors.comfyui.watch import Watch
from herdsman.connectors.comfyui.wire import NotThere
from herdsman.core.errors import ServiceUnavailable
from herdsman.core.service import Unknown, Verdict, Working
from herdsman.ports import Clock

SETTLES = timedelta(seconds=2)
PAUSE = timedelta(seconds=0.1)


class Look:
    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock

    def at(self, external_id: str, watch: Watch | None) -> Verdict:
        """`ServiceUnavailable` where nothing is known, which is never the same as not found (X3-02)."""
        try:
            verdict = self._once(external_id, watch)
            if watch is not None and watch.ended:
                verdict = self._settled(verdict, external_id, watch)
        except ServiceUnavailable:
            self._api.forget_version()
            raise
        return watch.known(verdict) if watch is not None and isinstance(verdict, Working) else verdict

    def _settled(self, verdict: Verdict, external_id: str, watch: Watch) -> Verdict:
        """The end is told a moment before it is written down."""
        deadline = self._clock.monotonic() + SETTLES.total_seconds()
        while isinstance(verdict, Working | Unknown) and self._clock.monotonic() < deadline:
            self._clock.sleep(PAUSE)
            verdict = self._once(external_id, watch)
        # What still runs has not ended: it was another run under the same id.
        watch.ended = watch.ended and not isinstance(verdict, Working)
        return verdict

    def _once(self, external_id: str, watch: Watch | None) -> Verdict:
        if self._api.version() >= HAS_JOBS:
            try:
                return self._by_jobs(external_id, watch)
            except NotThere:
                self._api.forget_version()
        return self._by_queue(external_id, watch)

    def _by_jobs(self, external_id: str, watch: Watch | None) -> Verdict:
        job = self._api.job(external_id)
        if job is None:
            return Unknown(f"ComfyUI knows no job {external_id}")
        match job.get("status"):
            case "in_progress":
                return Working(position=0)
            case "pending":
                # It may have begun since, and then the next look says so.
                return find_in_queue(self._api.queue(), external_id) or Working()
            case "completed" | "failed" | "cancelled":
                return self._by_history(external_id, watch)
            case _:
                return self._by_queue(external_id, watch)

    def _by_queue(self, external_id: str, watch: Watch | None) -> Verdict:
        """The queue first: in the other order a job that ends between the two looks is in neither."""
        waiting = find_in_queue(self._api.queue(), external_id)
        if waiting is not None:
            return waiting
        return self._by_history(external_id, watch)

    def _by_history(self, external_id: str, watch: Watch | None) -> Verdict:
        entry = find_in_history(self._api.history(external_id), external_id)
        if entry is None:
            return Unknown(f"{external_id} is neither in ComfyUI's queue nor in its history")
        return judge(entry, watch.delivered() if watch is not None else ())
