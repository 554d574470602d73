"""`herdsman connectors`: which there are, and whether a service is fit for its jobs."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import entry_points
from typing import Annotated, Any, TypeVar, cast
from uuid import uuid4

import typer

from herdsman.cli.context import settings_here
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import Layout, Output, OutputOption, echo, print_json
from herdsman.connectors.comfyui.api import Api, NotThere, Wire
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.shapes import as_list, as_number, as_object, as_text, one_line
from herdsman.connectors.comfyui.socket import Socket
from herdsman.connectors.registry import GROUP, Around, find, installed
from herdsman.errors import Forbidden, InvalidRequest, InvalidSettings, ServiceUnavailable
from herdsman.jobs.protocol import Fitness, StoredFile
from herdsman.ports import SystemClock
from herdsman.settings.kinds import hide_password
from herdsman.settings.options import COMFYUI, services_of

NOBODY = "herdsman-check"
MB = 1024 * 1024


class Probes:
    def __init__(self, options: ComfyUIOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._wire = Wire(options, self._clock)
        self._api = Api(self._wire)

    def close(self) -> None:
        self._wire.close()

    def devices(self) -> Iterator[tuple[str, int, int]]:
        """Name, memory in all and free memory in MB, of each."""
        for each in as_list(self._api.system_stats().get("devices")):
            told = as_object(each)
            total, free = (as_number(told.get(name)) or 0 for name in ("vram_total", "vram_free"))
            yield one_line(as_text(told.get("name")) or "unnamed", 100), int(total) // MB, int(free) // MB

    def has_jobs_route(self) -> bool:
        """Since 0.6.0 one request tells of a job what takes two otherwise."""
        try:
            self._api.job(NOBODY)
        except NotThere:
            return False
        return True

    def hear(self) -> None:
        """Opens the socket, waits for the first word, and closes it."""
        # Of two sockets with one name the service forgets one: nobody else has this name.
        socket = Socket(self._options, f"{NOBODY}-{uuid4().hex}", self._clock)
        try:
            socket.open()
        finally:
            socket.close()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    vram_total_mb: int
    vram_free_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All that was asked, and how long each answer took."""

    connector: str
    url: str | None
    fault: str | None
    version: str | None
    queued: int | None
    devices: tuple[Device, ...] = ()
    has_jobs_route: bool | None = None
    """None where it was not asked; so with `hears`."""
    hears: bool | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])

    def document(self) -> dict[str, object]:
        return {"fit": self.fault is None, **asdict(self)}

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "service", f"{self.connector} at {self.url}" if self.url else self.connector
        yield "fit", "yes" if self.fault is None else "no"
        if self.version is not None:
            yield "version", f"{self.version}{', new enough' if self.has_jobs_route is not None else ''}"
        for each in self.devices:
            yield "device", f"{each.name}: {each.vram_free_mb} of {each.vram_total_mb} MB free"
        if self.queued is not None:
            yield "queue", f"{self.queued} waiting or running"
        if self.has_jobs_route is not None:
            missing = "not there: /queue and /history are asked instead"
            yield "/api/jobs", "there" if self.has_jobs_route else missing
        if self.hears is not None:
            yield "socket", "opened, heard, closed" if self.hears else "not heard"
        yield "answered", ", ".join(f"{what} in {took * 1000:.0f} ms" for what, took in self.seconds.items())


def checked(connector: str, options: Mapping[str, Any]) -> Checked:
    """Never raises for a service that is away or odd: that is its fault. Wrong options do."""
    opened = find(connector)(options, Around(clock=SystemClock(), results=_Nowhere()))
    with closing(opened):
        fitness, took = _timed(opened.fitness)
    found = _of(connector, options, fitness, took)
    if connector != COMFYUI or fitness.fault is not None:
        return found
    try:
        return _with_more(found, options)
    except ServiceUnavailable as error:
        return replace(found, fault=str(error))


def _of(connector: str, options: Mapping[str, Any], fitness: Fitness, took: float) -> Checked:
    url = options.get("url")
    return Checked(
        connector=connector,
        url=hide_password(url) if isinstance(url, str) else None,
        fault=fitness.fault,
        version=fitness.version,
        queued=fitness.queued,
        devices=_device(fitness),
        seconds={"version": took},
    )


def _device(fitness: Fitness) -> tuple[Device, ...]:
    if fitness.device is None:
        return ()
    return (Device(fitness.device, fitness.vram_total_mb or 0, fitness.vram_free_mb or 0),)


def _with_more(found: Checked, options: Mapping[str, Any]) -> Checked:
    from herdsman.connectors.comfyui.options import read_options  # noqa: PLC0415

    with closing(Probes(read_options(options))) as probes:
        devices = tuple(Device(*each) for each in probes.devices())
        there, jobs_took = _timed(probes.has_jobs_route)
        deaf, socket_took = _timed(lambda: _told_fault(probes.hear))
    return replace(
        found,
        devices=devices,
        has_jobs_route=there,
        hears=deaf is None,
        fault=deaf,
        seconds={**found.seconds, "jobs": jobs_took, "socket": socket_took},
    )


def _told_fault(call: Callable[[], None]) -> str | None:
    try:
        call()
    except ServiceUnavailable as error:
        return str(error)
    return None


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


class _Nowhere:
    """A check stores nothing, and reads nothing."""

    def for_agent(self, agent: str) -> "_Nowhere":
        del agent
        return self

    def put(self, job_id: str, name: str, content: Iterable[bytes]) -> StoredFile:
        del content
        raise Forbidden(f"a check keeps no files, not {name} of {job_id} either")

    def read(self, uri: str) -> Iterator[bytes]:
        raise Forbidden(f"a check reads no files, not {uri} either")

    def find(self, job_id: str, name: str) -> str | None:
        del job_id, name
        return None

    def drop(self, job_id: str) -> None:
        del job_id


connectors = typer.Typer(
    add_completion=False, invoke_without_command=True, help="List the connectors, and check a service."
)


@connectors.callback()
def overview(context: typer.Context, watch: Watch = False, output: LayoutOption = Layout.TABLE) -> None:
    """List the connectors that are installed, and the types of jobs that they run here."""
    if context.invoked_subcommand is None:
        show(_look, output, watch=watch)


@connectors.command("list")
def list_connectors(watch: Watch = False, output: LayoutOption = Layout.TABLE) -> None:
    """List the connectors that are installed, and the types of jobs that they run here."""
    show(_look, output, watch=watch)


@connectors.command()
def check(
    target: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="Where it listens, or a type of jobs; else COMFYUI_URL."),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="The connector; comfyui, or what the type has.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask a service whether it can take jobs, and show what it says of itself."""
    name, options = _meant(target, kind, services_of(settings_here()))
    found = checked(name, options)
    if output is Output.JSON:
        print_json(found.document())
    else:
        for label, said in found.rows():
            echo(f"{label:<11} {said}")
    if found.fault is not None:
        echo(f"herdsman: {found.fault}", err=True)
        raise typer.Exit(1)


def _meant(
    target: str | None, kind: str | None, services: Mapping[str, Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """The connector and its options."""
    target = COMFYUI if target is None and kind is None else target
    if target is not None and target in services and kind is None:
        options = dict(services[target])
        return options.pop("connector"), options
    if target is None or "://" not in target:
        raise InvalidRequest(_nothing_such(target, services))
    return kind or COMFYUI, {"url": target}


def _nothing_such(target: str | None, services: Mapping[str, object]) -> str:
    known = ", ".join(services) or "none"
    if target in (None, COMFYUI):
        return f"no service is named: write its URL, as in http://127.0.0.1:8188, or set COMFYUI_URL ({known} known)"
    return f"{target!r} is neither a URL, as http://127.0.0.1:8188 is, nor a type of jobs with a service: {known}"


def _look() -> Listing:
    here, types = [_installed(name) for name in installed()], _types(services_of(settings_here()))
    return Listing(
        document={"installed": here, "types": types},
        columns=("CONNECTOR", "STATE", "TYPES OF JOBS", "+FROM"),
        rows=[
            (each["name"] or "", each["fault"] or "ready", _served(types, each["name"]), each["from"] or "")
            for each in here
        ],
        empty="no connector is installed",
        below=()
        if types
        else ("no type of jobs is given to a service here: set COMFYUI_URL or WORKER_CONNECTORS_FILE",),
    )


def _served(types: Sequence[Mapping[str, str | None]], name: str | None) -> str:
    mine = [each for each in types if each["connector"] == name]
    return ", ".join(
        f"{each['type']} at {each['where']}" if each["where"] else f"{each['type']}" for each in mine
    )


def _installed(name: str) -> dict[str, str | None]:
    origins = sorted(plugin.value for plugin in entry_points(group=GROUP, name=name))
    return {"name": name, "from": " and ".join(origins), "fault": _fault(name)}


def _fault(name: str) -> str | None:
    try:
        find(name)
    except (InvalidSettings, AttributeError) as error:
        return str(error)
    return None


def _types(services: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str | None]]:
    return [
        {"type": kind, "connector": options["connector"], "where": _where(options)}
        for kind, options in sorted(services.items())
    ]


def _where(options: Mapping[str, Any]) -> str | None:
    """One address that a person knows it by. Of the options no other is shown: they may hold passwords."""
    submit: Any = options.get("submit")
    url: Any = options.get("url") or (
        cast("dict[str, Any]", submit).get("url") if isinstance(submit, dict) else None
    )
    if isinstance(url, str):
        return hide_password(url)
    written = options.get("class")
    return written if isinstance(written, str) else None
