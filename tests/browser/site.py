"""A control plane of its own for the pages, with pretended GPUs and little patience for silent workers."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from herdsman.providers.local.processes import find_marked, kill_family
from tests.support.shell import Shell
from tests.support.up_command import until, up

# A worker that was killed is missed after seconds, not after minutes.
QUICK = {
    "CLAIM_TTL_SEC": "5",
    "SELF_FENCE_SEC": "3",
    "HEARTBEAT_INTERVAL_SEC": "1",
    "SWEEP_INTERVAL_SEC": "1",
    "MIN_ACTIVE_GPUS": "2",
    "MAX_ACTIVE_GPUS": "2",
}


class Site:
    def __init__(self, shell: Shell, url: str, token: str) -> None:
        self.shell = shell
        self.url = url
        self.token = token

    def call(self, method: str, path: str, body: object = None) -> Any:
        """As the admin, past the page."""
        answer = httpx.request(
            method, self.url + path, json=body, headers={"Authorization": f"Bearer {self.token}"}, timeout=60
        )
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def submit(self, seconds: float, **more: object) -> str:
        job = {"type": "demo", "payload": {"seconds": seconds}, **more}
        return self.call("POST", "/jobs/submit", job)["job_id"]

    def job(self, job_id: str) -> dict[str, Any]:
        return self.call("GET", f"/jobs/{job_id}")

    def wait(self, job_id: str, *states: str) -> dict[str, Any]:
        until(lambda: self.job(job_id)["status"] in states)
        return self.job(job_id)

    def until_ready(self, workers: int = 2) -> None:
        until(lambda: self.call("GET", "/overview")["workers"]["active"] == workers)

    def kill_worker_of(self, job_id: str) -> str:
        """Without a word, as a machine that loses its power; the job must run."""
        worker: str = self.wait(job_id, "running")["worker_id"]
        # Not by the command, which starts so slowly on a busy machine that the job may end before.
        process = find_marked(f"HERDSMAN_WORKER_ID={worker}")
        assert process is not None
        kill_family(process)
        return worker

    def clear(self) -> None:
        """Nothing runs any more: `herdsman up` waits for jobs before it ends."""
        if held := self.held():
            self.call("POST", "/jobs/cancel", {"ids": held})
            until(lambda: not self.held())

    def held(self) -> list[str]:
        found = self.call("GET", "/jobs?status=claimed&status=running&limit=100")["jobs"]
        return [each["job_id"] for each in found]

    def token_of(self, role: str) -> str:
        return self.call("POST", "/tokens", {"name": f"a-{role}", "role": role})["token"]


@contextmanager
def a_site(
    directory: Path,
    *,
    environment: Mapping[str, str] = QUICK,
    before: Callable[[Shell], None] = lambda _: None,
) -> Generator[Site]:
    shell = Shell(directory)
    shell.environment |= {
        **environment,
        "XDG_DATA_HOME": str(directory / "data"),
        "XDG_STATE_HOME": str(directory / "state"),
    }
    before(shell)
    with up(shell, "--fake-gpus", "2") as greeting:
        told = dict(line.split(maxsplit=1) for line in greeting if len(line.split(maxsplit=1)) == 2)
        site = Site(shell, told["api"].strip(), told["token"].strip())
        try:
            yield site
        finally:
            site.clear()
