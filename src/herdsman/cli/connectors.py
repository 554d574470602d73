"""`herdsman connectors`: those that are installed, and whether a service can take jobs."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any
from uuid import uuid4

import typer

from herdsman import plugins
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import Layout, Output, OutputOption, echo, printed_json
from herdsman.cli.services import settings_here
from herdsman.connectors.comfyui.api import Api, NotThere
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.shapes import as_list, as_number, as_object, as_text
from herdsman.connectors.comfyui.socket import Socket
from herdsman.connectors.registry import GROUP, Around, find, installed, read_options
from herdsman.errors import InvalidRequest, InvalidSettings, ServiceUnavailable
from herdsman.ports import SystemClock
from herdsman.results import open_store
from herdsman.settings import Settings
from herdsman.settings.kinds import hide_password
from herdsman.settings.options import COMFYUI, result_options, services_of
from herdsman.text import one_line

NOBODY = "herdsman-check"
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    vram_total_mb: int
    vram_free_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    connector: str
    url: str | None
    fault: str | None
    version: str | None
    queued: int | None
    devices: tuple[Device, ...] = ()
    has_jobs_route: bool | None = None
    """None where it was not checked, like `hears`."""
    hears: bool | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "service", f"{self.connector} at {self.url}" if self.url else self.connector
        yield "healthy", "yes" if self.fault is None else "no"
        if self.version is not None:
            yield "version", f"{self.version}{', new enough' if self.has_jobs_route is not None else ''}"
        for each in self.devices:
            yield "device", f"{each.name}: {each.vram_free_mb} of {each.vram_total_mb} MB free"
        if self.queued is not None:
            yield "queue", f"{self.queued} waiting or running"
        if self.has_jobs_route is not None:
            missing = "not available: /queue and /history are used instead"
            yield "/api/jobs", "available" if self.has_jobs_route else missing
        if self.hears is not None:
            yield "socket", "works" if self.hears else "no message received"
        yield "answered", ", ".join(f"{what} in {took * 1000:.0f} ms" for what, took in self.seconds.items())


def checked(connector: str, options: Mapping[str, Any], settings: Settings) -> Checked:
    """A service that is down or broken is reported as `fault`; only wrong options raise."""
    store = open_store(result_options(settings))
    opened = find(connector)(options, Around(clock=SystemClock(), results=store))
    with closing(opened):
        began = time.monotonic()
        fitness = opened.fitness()
        took = time.monotonic() - began
    url = options.get("url")
    memory = fitness.vram_total_mb or 0, fitness.vram_free_mb or 0
    found = Checked(
        connector=connector,
        url=hide_password(url) if isinstance(url, str) else None,
        fault=fitness.fault,
        version=fitness.version,
        queued=fitness.queued,
        devices=() if fitness.device is None else (Device(fitness.device, *memory),),
        seconds={"version": took},
    )
    if connector != COMFYUI or fitness.fault is not None:
        return found
    try:
        return _with_more(found, options)
    except ServiceUnavailable as error:
        return replace(found, fault=str(error))


def _with_more(found: Checked, options: Mapping[str, Any]) -> Checked:
    """What only ComfyUI has: its devices, the route for jobs, and the socket."""
    parsed = read_options(ComfyUIOptions, options)
    clock, devices, there, deaf = SystemClock(), list[Device](), True, None
    with closing(Api(parsed, clock)) as api:
        for each in as_list(api.system_stats().get("devices")):
            device = as_object(each)
            total, free = (int(as_number(device.get(key)) or 0) // MB for key in ("vram_total", "vram_free"))
            devices.append(Device(one_line(as_text(device.get("name")) or "unnamed", 100), total, free))
        began = time.monotonic()
        try:
            api.job(NOBODY)  # since 0.6.0 one request answers what takes two otherwise
        except NotThere:
            there = False
        asked = time.monotonic()
        # Of two sockets with one name the service forgets one, so this name is unique.
        socket = Socket(parsed, f"{NOBODY}-{uuid4().hex}", clock)
        try:
            socket.open()
        except ServiceUnavailable as error:
            deaf = str(error)
        finally:
            socket.close()
        seconds = {**found.seconds, "jobs": asked - began, "socket": time.monotonic() - asked}
    return replace(found, devices=tuple(devices), has_jobs_route=there, hears=deaf is None, fault=deaf, seconds=seconds)


connectors = typer.Typer(add_completion=False, invoke_without_command=True)


@connectors.callback()
@connectors.command("list", help="List the installed connectors, and the job types that they run here.")
def list_connectors(context: typer.Context, watch: Watch = False, output: LayoutOption = Layout.TABLE) -> None:
    if context.invoked_subcommand is None:
        show(_list, output, watch=watch)


@connectors.command()
def check(
    target: Annotated[
        str | None, typer.Argument(metavar="URL", help="The URL of the service, or a job type; COMFYUI_URL by default.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="The connector; by default comfyui, or that of the job type.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check whether a service can take jobs, and show its details."""
    settings = settings_here()
    name, options = _chosen(target, kind, services_of(settings))
    found = checked(name, options, settings)
    if not printed_json(output, {"fit": found.fault is None, **asdict(found)}):
        for label, text in found.rows():
            echo(f"{label:<11} {text}")
    if found.fault is not None:
        echo(f"herdsman: {found.fault}", err=True)
        raise typer.Exit(1)


def _chosen(
    target: str | None, kind: str | None, services: Mapping[str, Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    target = COMFYUI if target is None else target
    if target in services and kind is None:
        options = dict(services[target])
        return options.pop("connector"), options
    if "://" in target:
        return kind or COMFYUI, {"url": target}
    known = ", ".join(services) or "none"
    if target == COMFYUI:
        raise InvalidRequest(
            f"no service was given: give its URL, such as http://127.0.0.1:8188, or set COMFYUI_URL ({known} known)"
        )
    raise InvalidRequest(
        f"{target!r} is neither a URL, such as http://127.0.0.1:8188, nor a job type with a service: {known}"
    )


def _list() -> Listing:
    types = [
        {"type": kind, "connector": options["connector"], "where": _where(options)}
        for kind, options in sorted(services_of(settings_here()).items())
    ]
    here: list[dict[str, str | None]] = []
    rows: list[tuple[str, ...]] = []
    for name in installed():
        origin, fault = plugins.origins(GROUP, name), None
        try:
            find(name)
        except (InvalidSettings, AttributeError) as error:
            fault = str(error)
        here.append({"name": name, "from": origin, "fault": fault})
        served = ([each["type"], each["where"]] for each in types if each["connector"] == name)
        places = ", ".join(" at ".join(filter(None, each)) for each in served)
        rows.append((name, fault or "ready", places, origin))
    unused = "no job type uses a service here: set COMFYUI_URL or WORKER_CONNECTORS_FILE"
    return Listing(
        document={"installed": here, "types": types},
        columns=("CONNECTOR", "STATUS", "JOB TYPES", "+FROM"),
        rows=rows,
        empty="no connector is installed",
        below=() if types else (unused,),
    )


def _where(options: Mapping[str, Any]) -> str | None:
    """Its URL or class. No other option is shown: they may hold passwords."""
    match options:
        case {"url": str(url)} | {"submit": {"url": str(url)}} if url:
            return hide_password(url)
        case {"class": str(written)}:
            return written
        case _:
            return None
