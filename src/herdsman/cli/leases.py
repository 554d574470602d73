"""`herdsman leases` and `herdsman gpus`: who may use which GPU, and what is on it."""

import socket
from datetime import timedelta
from typing import Annotated

import typer

from herdsman.cli.connect import connect
from herdsman.cli.listing import After, LayoutOption, Limit, Listing, Watch, show
from herdsman.cli.output import Layout, age, ago, echo
from herdsman.client import calls
from herdsman.errors import InvalidRequest, StoreUnavailable, Unreachable
from herdsman.leases.wire import GpuOut, GpusIn, LeaseOut
from herdsman.ports import SystemClock
from herdsman.worker.gpu import GpuReader, Nvml, fake_gpus

leases = typer.Typer(add_completion=False, invoke_without_command=True)
gpus = typer.Typer(add_completion=False, invoke_without_command=True)

_LEASE_COLUMNS = (
    *("TOKEN", "AGENT", "STATUS", "GPU", "MEMORY", "SEQ", "HEARTBEAT", "AGE"),
    *("+EXPIRES", "+WHY", "+GPU ID"),
)
_GPU_COLUMNS = (*("UUID", "NODE", "INDEX", "TOTAL", "USED", "OUTSIDE", "LEASED", "MEASURED", "STATUS"), "+NAME")
Token = Annotated[str, typer.Argument(metavar="TOKEN", help="The lease's token.")]


@leases.callback()
def list_leases(
    context: typer.Context,
    ended: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    limit: Limit = 50,
    after: After = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    if context.invoked_subcommand is not None:
        return
    client = connect()

    def read() -> Listing:
        page = client.send(calls.leases(ended=ended, after=after, limit=limit))
        return Listing(
            document=page,
            columns=_LEASE_COLUMNS,
            rows=[_lease(each) for each in page.leases],
            empty="no leases",
            next=page.next,
            then="herdsman gpus",
        )

    show(read, output, watch=watch)


@leases.command()
def release(token: Token) -> None:
    """Release a lease for its holder."""
    _print_ended(connect().send(calls.release_lease(token)))


@leases.command()
def revoke(token: Token) -> None:
    """Revoke a lease; its holder learns of it with the next heartbeat."""
    _print_ended(connect().send(calls.revoke_lease(token)))


@gpus.callback()
def list_gpus(
    context: typer.Context,
    limit: Limit = 100,
    after: After = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    if context.invoked_subcommand is not None:
        return
    client = connect()

    def read() -> Listing:
        page = client.send(calls.gpus(after=after, limit=limit))
        return Listing(
            document=page,
            columns=_GPU_COLUMNS,
            rows=[_gpu(each) for each in page.gpus],
            empty="no GPUs; workers report theirs, other machines with: herdsman gpus report",
            next=page.next,
            then="herdsman leases",
        )

    show(read, output, watch=watch)


@gpus.command()
def report(
    node: Annotated[str | None, typer.Option(help="The name of this machine; its host name by default.")] = None,
    every: Annotated[
        float | None, typer.Option(min=0.1, max=3600, metavar="SECONDS", help="Report again this often, until Ctrl-C.")
    ] = None,
    fake: Annotated[int, typer.Option(min=0, max=64, help="Simulate this many GPUs.")] = 0,
) -> None:
    """Measure the GPUs of this machine and report them; for machines that run no worker."""
    measure: GpuReader = fake_gpus(fake) if fake else Nvml()
    client, name = connect(), node or socket.gethostname()
    while True:
        found = measure()
        if not found.devices:
            raise InvalidRequest(f"no GPU was found here: {found.fault or 'there is no driver, or no card'}")
        reported = GpusIn.of(found.devices, found.vram_age)
        try:
            taken = client.send(calls.report_gpus(name, reported)).taken
            echo(f"{name}: {len(taken)} of {len(reported.gpus)} GPUs reported")
        except (Unreachable, StoreUnavailable) as error:
            if every is None:
                raise
            echo(f"not reported: {error}", err=True)
        if every is None:
            return
        SystemClock().sleep(timedelta(seconds=every))


@gpus.command()
def clear(uuid: Annotated[str, typer.Argument(metavar="UUID", help="The GPU.")]) -> None:
    """Lift the quarantine of a GPU; the memory now in use on it counts as used by others."""
    done = connect().send(calls.clear_gpu(uuid))
    echo(f"{done.uuid} may be leased again; {done.outside_mb} MB on it count as used by others")


def _print_ended(lease: LeaseOut) -> None:
    echo(f"{lease.token or lease.lease_id} is {lease.status} ({lease.reason})")


def _lease(each: LeaseOut) -> tuple[str, ...]:
    where = "cpu" if each.mode == "cpu" else f"{each.node_id}/{each.gpu_index}"
    memory = f"{each.memory_mb} MB{' alone' if each.exclusive else ''}"
    who = (each.token or each.lease_id, each.agent, each.status)
    times = (ago(each.last_heartbeat), age(each.created_at), f"{each.expires_at:%H:%M:%S}")
    return (*who, where, memory, str(each.lease_seq), *times, each.reason, each.gpu_uuid or "")


def _gpu(each: GpuOut) -> tuple[str, ...]:
    status = each.quarantine_reason or ("quarantined" if each.quarantined_at else "ok")
    numbers = (each.total_mb, each.used_mb, each.outside_mb, each.leased_mb)
    where = (each.uuid, each.node_id, str(each.gpu_index))
    return (*where, *map(str, numbers), ago(each.measured_at), status, each.name)
