"""`herdsman leases` and `herdsman gpus`: who may use which GPU, and what is on it."""

import socket
from datetime import timedelta
from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import Layout, age, ago, echo
from herdsman.client import calls
from herdsman.errors import InvalidRequest, StoreUnavailable, Unreachable
from herdsman.leases.wire import GpuOut, GpusIn, GpusOut, LeaseOut, LeasesOut
from herdsman.ports import SystemClock
from herdsman.worker.gpu import Look, Nvml, fake_gpus

leases = typer.Typer(
    add_completion=False, invoke_without_command=True, help="List the leases of GPUs, and end them."
)
gpus = typer.Typer(
    add_completion=False, invoke_without_command=True, help="List the GPUs, report and clear them."
)

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many at most.")]
After = Annotated[str | None, typer.Option(help="Where the page before ended.")]
Token = Annotated[str, typer.Argument(metavar="TOKEN", help="The lease's token.")]


@leases.callback()
def list_leases(
    context: typer.Context,
    ended: Annotated[bool, typer.Option("--all", help="Those that have ended, too.")] = False,
    limit: Limit = 50,
    after: After = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List the leases of GPUs, newest first, and end them."""
    if context.invoked_subcommand is not None:
        return
    client = connect()
    show(
        lambda: _list_of_leases(client.send(calls.leases(ended=ended, after=after, limit=limit))),
        output,
        watch=watch,
    )


@leases.command()
def release(token: Token) -> None:
    """Give a lease back for its holder."""
    _ended(connect().send(calls.release_lease(token)))


@leases.command()
def revoke(token: Token) -> None:
    """Take a lease back from its holder, who learns of it with the next heartbeat."""
    _ended(connect().send(calls.revoke_lease(token)))


@gpus.callback()
def list_gpus(
    context: typer.Context,
    limit: Limit = 100,
    after: After = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List the GPUs with what is used and leased of them, report and clear them."""
    if context.invoked_subcommand is not None:
        return
    client = connect()
    show(lambda: _list_of_gpus(client.send(calls.gpus(after=after, limit=limit))), output, watch=watch)


@gpus.command()
def report(
    node: Annotated[
        str | None, typer.Option(help="The name of this machine; without it, its host name.")
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(min=0.1, max=3600, metavar="SECONDS", help="Go on, so often; Ctrl-C ends it."),
    ] = None,
    fake: Annotated[int, typer.Option(min=0, max=64, help="Pretend that there are so many GPUs.")] = 0,
) -> None:
    """Measure the GPUs of this machine and report them; for machines that run no worker."""
    look: Look = fake_gpus(fake) if fake else Nvml()
    client, name = connect(), node or socket.gethostname()
    while True:
        seen = look()
        if not seen.devices:
            raise InvalidRequest(f"no GPU was found here: {seen.fault or 'there is no driver, or no card'}")
        told = GpusIn.of(seen.devices, seen.vram_age)
        try:
            taken = client.send(calls.report_gpus(name, told)).taken
            echo(f"{name}: {len(taken)} of {len(told.gpus)} GPUs reported")
        except (Unreachable, StoreUnavailable) as error:
            if every is None:
                raise
            echo(f"not reported: {error}", err=True)
        if every is None:
            return
        SystemClock().sleep(timedelta(seconds=every))


@gpus.command()
def clear(uuid: Annotated[str, typer.Argument(metavar="UUID", help="The GPU.")]) -> None:
    """Lift a quarantine: what is in use on the GPU now counts as outsiders'."""
    done = connect().send(calls.clear_gpu(uuid))
    echo(f"{done.uuid} may be leased again; {done.outside_mb} MB on it count as outsiders'")


def _ended(lease: LeaseOut) -> None:
    echo(f"{lease.token or lease.lease_id} is {lease.status} ({lease.reason})")


def _list_of_leases(page: LeasesOut) -> Listing:
    return Listing(
        document=page.model_dump(mode="json"),
        columns=(
            *("TOKEN", "AGENT", "STATE", "GPU", "MEMORY", "SEQ", "HEARTBEAT", "AGE"),
            *("+EXPIRES", "+WHY", "+GPU ID"),
        ),
        rows=[_lease(each) for each in page.leases],
        empty="no leases",
        next=page.next,
        then="herdsman gpus",
    )


def _lease(each: LeaseOut) -> tuple[str, ...]:
    where = "cpu" if each.mode == "cpu" else f"{each.node_id}/{each.gpu_index}"
    memory = f"{each.memory_mb} MB{' alone' if each.exclusive else ''}"
    times = (ago(each.last_heartbeat), age(each.created_at))
    wide = (f"{each.expires_at:%H:%M:%S}", each.reason, each.gpu_uuid or "")
    return (
        each.token or each.lease_id,
        each.agent,
        each.status,
        where,
        memory,
        str(each.lease_seq),
        *times,
        *wide,
    )


def _list_of_gpus(page: GpusOut) -> Listing:
    return Listing(
        document=page.model_dump(mode="json"),
        columns=("UUID", "NODE", "INDEX", "TOTAL", "USED", "OUTSIDE", "LEASED", "MEASURED", "STATE", "+NAME"),
        rows=[_gpu(each) for each in page.gpus],
        empty="no GPUs; workers report theirs, other machines with: herdsman gpus report",
        next=page.next,
        then="herdsman leases",
    )


def _gpu(each: GpuOut) -> tuple[str, ...]:
    state = each.quarantine_reason or ("quarantined" if each.quarantined_at else "ok")
    numbers = (each.total_mb, each.used_mb, each.outside_mb, each.leased_mb)
    measured = ago(each.measured_at)
    return (
        each.uuid,
        each.node_id,
        str(each.gpu_index),
        *map(str, numbers),
        measured,
        state,
        each.name,
    )
