"""A busy quarter of a minute, so that every page has something to show: also names that are too long, and a killed worker."""

from dataclasses import dataclass

from tests.browser.site import Site

LONG = "a-name-without-any-room-to-break-it-anywhere-that-somebody-has-really-chosen"
# Anything that took this for markup would ask the server for it, or say something in the console.
MARKUP = '<img src="/nowhere.png" onerror="console.error(1)"><script>console.error(2)</script>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    healed: str
    failed: str
    running: str
    waiting: str
    worker: str
    cycle: int


def tell(site: Site) -> Story:
    healed = site.submit(3, tags=["night", "batch-7"])
    killed = site.kill_worker_of(healed)
    failed = site.submit(-1)
    for each in range(6):
        site.submit(0.2, tags=["night"], priority=each)
    waiting = site.submit(1, type="sculpture", job_id=LONG, pool=LONG[:60], tags=[LONG[:60]], agent="studio")
    _odd_payload(site)
    _pool(site)
    site.wait(failed, "dead_letter")
    site.wait(healed, "done")
    return Story(
        healed=healed,
        failed=failed,
        running=at_work(site),
        waiting=waiting,
        worker=killed,
        cycle=_cycle(site),
    )


def at_work(site: Site) -> str:
    """A job that runs, for a while."""
    for each in site.held():
        return each
    job_id = site.submit(40)
    site.wait(job_id, "running")
    return job_id


def _odd_payload(site: Site) -> None:
    payload = {"prompt": MARKUP, "line": "without-a-space" * 40, "steps": list(range(40))}
    site.call("POST", "/jobs/submit", {"type": "sculpture", "job_id": "odd", "payload": payload})


def _pool(site: Site) -> None:
    pool = {"pool_id": "painters", "model_id": f"stabilityai/{LONG}", "num_workers": 1}
    site.call("POST", "/workers/pool", pool)


def _cycle(site: Site) -> int:
    return site.call("GET", "/decisions?only=acted")["cycles"][0]["cycle"]
