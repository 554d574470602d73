"""`herdsman pools`: every pool there is, those that were asked for by name and those of the settings."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.listing import LayoutOption, Listing, Watch
from herdsman.cli.listing import show as show_list
from herdsman.cli.output import Layout, age, did_you_mean
from herdsman.client import Client, dashboard_calls, pool_calls
from herdsman.core.errors import HerdsmanError, NotFound
from herdsman.core.model import DEFAULT_POOL
from herdsman.core.states import WorkerState
from herdsman.wire.pools import PoolOut

COLUMNS = (
    *("POOL", "STATE", "WHY", "MODEL", "WORKERS", "WANTED", "WAITING", "AGE"),
    *("+AGENT", "+REVISION", "+SERVED BY", "+TROUBLE"),
)
_MOST = 200


def pools(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=_MOST, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List pools: those that were asked for by name, and those of the settings."""
    client = connect()
    show_list(lambda: _look(client, after, limit), output, watch=watch)


def row(pool: PoolOut) -> tuple[str, ...]:
    sizes = str(pool.spawned_workers), str(pool.desired_workers), str(pool.queued)
    narrow = (pool.pool_id, pool.status, pool.reason, pool.model_id or "-", *sizes, age(pool.started_at))
    return (*narrow, pool.agent_name, str(pool.revision), str(pool.served_by), "; ".join(pool.troubles))


def named_well(client: Client, pool: str, error: NotFound) -> HerdsmanError:
    """The same, with the pool that may have been meant."""
    known = [each.pool_id for each in client.send(pool_calls.page(None, _MOST)).pools]
    return NotFound(f"{error}{did_you_mean(pool, known)}")


def _look(client: Client, after: str | None, limit: int) -> Listing:
    page = client.send(pool_calls.page(after, limit))
    others = () if after is not None else _others(client, {each.pool_id for each in page.pools})
    rows = [row(each) for each in page.pools] + [_unnamed(each) for each in others]
    return Listing(
        document={**page.model_dump(mode="json", by_alias=True), "other_pools": others},
        columns=COLUMNS,
        rows=rows,
        empty="no pools; ask for one with: herdsman pool create NAME --model MODEL",
        next=page.next,
        then=f"herdsman why pool {rows[0][0]}" if rows else "",
    )


def _others(client: Client, named: set[str]) -> Sequence[dict[str, object]]:
    """Those of the settings, as their workers and jobs show them; the default one is always there."""
    workers, waiting, active = Counter[str](), Counter[str](), Counter[str]()
    for worker in client.send(dashboard_calls.herd()).workers:
        workers[worker.pool] += 1
        active[worker.pool] += worker.status == WorkerState.ACTIVE
    for line in client.send(dashboard_calls.overview()).queue:
        waiting[line.pool] += line.queued
    return [
        {"pool_id": pool, "workers": workers[pool], "active": active[pool], "queued": waiting[pool]}
        for pool in sorted({DEFAULT_POOL, *workers, *waiting} - named)
    ]


def _unnamed(other: dict[str, object]) -> tuple[str, ...]:
    narrow = (other["pool_id"], "settings", "", "-", other["workers"], "", other["queued"], "")
    return (*map(str, narrow), "", "", "", "")
