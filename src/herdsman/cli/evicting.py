"""What ending all workers of a pool would end, before it does."""

from herdsman.cli.output import Output, ask_first, echo, print_json
from herdsman.cli.pools import named_well
from herdsman.client import Client, dashboard_calls, pool_calls
from herdsman.core.errors import NotFound


def evicting(client: Client, pool: str, output: Output, *, dry_run: bool, yes: bool) -> bool:
    """Whether to go on: the pool is there, and somebody agrees."""
    try:
        client.send(pool_calls.look(pool))
    except NotFound as error:
        raise named_well(client, pool, error) from error
    living = [each for each in client.send(dashboard_calls.herd()).workers if each.pool == pool]
    jobs = [job.job_id for each in living for job in each.jobs]
    if not dry_run:
        ask_first(f"{_workers(len(living))} of {pool} are ended without waiting. Go on?", yes=yes)
        return True
    if output is Output.JSON:
        print_json({"workers": [each.worker_id for each in living], "jobs": jobs, "dry_run": True})
        return False
    for each in living:
        held = ", ".join(job.job_id for job in each.jobs) or "no job"
        echo(f"{each.worker_id} ({held})")
    echo(f"would end {_workers(len(living))} of {pool}; {len(jobs)} jobs would go back; nothing was done")
    return False


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
