"""`herdsman doctor`: is everything here as it must be, and if not, what to do."""

import importlib
import socket
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from secrets import token_hex
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.text import Text

from herdsman import __version__
from herdsman.cli import findings
from herdsman.cli.findings import Finding, State, fail
from herdsman.cli.machine import free_bytes, places, port_fault, sqlite_file, write_fault
from herdsman.cli.output import Output, OutputOption, print_json, step
from herdsman.client import calls
from herdsman.errors import HerdsmanError
from herdsman.fleet.installation import moved
from herdsman.fleet.model import InstanceRef, SpawnRequest
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.ports import SystemClock
from herdsman.server.runtime_files import runtime_files, shown_database
from herdsman.settings import Settings, advice, load_settings
from herdsman.settings.options import address_fault, on_this_machine
from herdsman.text import printable_lines
from herdsman.worker.gpu import Nvml

if TYPE_CHECKING:
    from herdsman.db.connection import Database, Tx
    from herdsman.providers.runpod import RunpodProvider


SILENCE = timedelta(seconds=3)
POD_PATIENCE = timedelta(minutes=15)
"""So long a pod may take to pull its image and call us."""
PROBED = "herdsman-probe:"
# With what an image has: curl, or Python. It stays afterwards, for a container that exits is started again.
PROBE = f"""\
for wait in 1 5 10 30; do
  said=$(curl -fsS -m 10 "$PROBE_URL/health/live" 2>&1 ||
    python3 -c 'import os, urllib.request as u; u.urlopen(os.environ["PROBE_URL"] + "/health/live", timeout=10)' 2>&1)
  if [ $? -eq 0 ]; then echo '{PROBED} reached'; sleep 900; exit; fi
  sleep $wait
done
echo "{PROBED} $(echo "$said" | tail -n 1)"; sleep 900"""

Look = Callable[[Settings], Iterator[Finding]]


def see_settings(settings: Settings) -> Iterator[Finding]:
    warnings = list(advice(settings))
    for each in warnings:
        yield findings.warn("settings", each, "herdsman config --explain shows the numbers")
    if not warnings:
        yield findings.ok("settings", "they fit together")


def see_versions(_: Settings) -> Iterator[Finding]:
    yield findings.versions(__version__, sys.version_info[:3], sqlite3.sqlite_version)


def see_room(settings: Settings) -> Iterator[Finding]:
    for place in places(settings):
        yield findings.room(place, write_fault(place), free_bytes(place.directory))


def see_secrets(settings: Settings) -> Iterator[Finding]:
    where = runtime_files(settings)
    for path in (where.admin_token, where.pepper):
        yield findings.secret_file(path, path.stat().st_mode if path.exists() else None)


def see_database(settings: Settings) -> Iterator[Finding]:
    """A SQLite file that is not there is not made."""
    file = sqlite_file(settings)
    if settings.api.api_url is not None and (file is None or not file.exists()):
        yield findings.ok("database", f"not looked at: API_URL names a server, {settings.api.api_url}")
    elif file is not None and not file.exists():
        yield findings.warn("database", f"{file} is not there yet", "herdsman up makes it")
    else:
        yield from _see_server(settings)


def _see_server(settings: Settings) -> Iterator[Finding]:
    from herdsman.db.checks import (  # noqa: PLC0415  (a worker's machine has no database)
        inspect_server,
        latest,
        require_undamaged,
        schema_fault,
    )
    from herdsman.server.wiring import open_database  # noqa: PLC0415

    database = open_database(settings)
    try:
        server = inspect_server(database)
        yield findings.ok("database", f"{server} at {shown_database(settings)}")
        for warning in (*server.warnings, *server.notes):
            yield findings.warn("database", warning, "docs/databases.md says what is checked, and why")
        require_undamaged(database)
        fault = schema_fault(database)
        yield findings.schema(fault, latest())
        if fault is None:
            yield findings.adopted(*database.read(_doubt))
        yield findings.clock(_skew(database), database.backend)
    finally:
        database.close()


def _doubt(tx: "Tx") -> tuple[str, str, str]:
    from herdsman.fleet import installation_sql as installation  # noqa: PLC0415

    known = installation.find(tx)
    if known is None:
        return "", "", ""
    here = installation.place_of(tx)
    return known.doubt(here, ()), moved(known.place, here), known.hint


def _skew(database: "Database") -> timedelta | None:
    """How far its clock is ahead of ours; None where it has none of its own."""
    if database.backend == "SQLite":
        return None
    before = datetime.now(UTC)
    theirs = database.read(lambda tx: tx.now())
    return theirs - (before + (datetime.now(UTC) - before) / 2)


def see_redis(settings: Settings) -> Iterator[Finding]:
    url = settings.streams.redis_url
    if url is None:
        yield findings.ok("redis", "not used: workers ask the database for jobs")
        return
    from herdsman.redis.client import check_version, connect, translated  # noqa: PLC0415  (the library is an extra)

    client = connect(url.get_secret_value(), SILENCE)
    try:
        with translated():
            client.ping()
        check_version(client)
        yield findings.ok("redis", "answers")
    finally:
        client.close()


def see_provider(settings: Settings) -> Iterator[Finding]:
    """A rented fleet is asked only where there is a key."""
    name, key = settings.providers.provider, settings.runpod.runpod_api_key
    if key is not None:
        yield findings.runpod_key(key.get_secret_value())
    if name == "local":
        yield findings.ok("provider", "local: workers are processes of this machine")
        return
    if (fault := address_fault(settings)) is not None:
        yield findings.fail("provider", *fault.rsplit(": ", 1))
    from herdsman.server.wiring import open_provider  # noqa: PLC0415

    listed = open_provider(settings).list_instances()
    yield findings.ok("provider", f"{name} answers, and lists {len(listed)} instances of ours")


def see_rented(settings: Settings) -> Iterator[Finding]:
    """What a pod is asked for with, as far as it can be known without renting one."""
    if settings.providers.provider != "runpod":
        yield findings.ok("provider", f"{settings.providers.provider} has nothing more to look at")
        return
    provider = _runpod(settings)
    api, options = provider.api, provider.options
    yield findings.spent(api.spent_lately())
    yield findings.image(options.image, options.template_id)
    yield from findings.gpu_types(options.gpu_types, api.list_gpu_types(options.cloud), options.cloud)
    yield from findings.volumes(options.volumes, api.list_volumes())
    yield _see_address(settings)


def _runpod(settings: Settings) -> "RunpodProvider":
    from herdsman.providers.runpod import RunpodProvider  # noqa: PLC0415  (the library is an extra)
    from herdsman.server.wiring import open_provider  # noqa: PLC0415

    provider = open_provider(settings)
    assert isinstance(provider, RunpodProvider)
    return provider


def _called(settings: Settings) -> str | None:
    """What a pod would be told to call; None where nobody knows yet."""
    there = runtime_files(settings).running()
    return settings.api.api_url or (there.url if there is not None and on_this_machine(settings) else None)


def _see_address(settings: Settings) -> Finding:
    import httpx  # noqa: PLC0415

    url = _called(settings)
    if url is None or address_fault(settings) is not None:
        return findings.warn(
            "provider", "whether pods reach the API is not known", "set API_URL, or start herdsman up"
        )
    try:
        answer = httpx.get(f"{url}/health/live", timeout=SILENCE.total_seconds()).status_code
        addresses = {str(each[4][0]) for each in socket.getaddrinfo(urlsplit(url).hostname, None)}
    except (httpx.HTTPError, OSError) as error:
        return findings.fail(
            "provider", f"{url} does not answer: {error}", "check API_URL, the proxy and the firewall"
        )
    return findings.address(url, answer, addresses, here=on_this_machine(settings))


def see_from_a_pod(settings: Settings) -> Iterator[Finding]:
    """Rents one pod, which says in its log whether it reached the API, and is ended whatever happens."""
    from herdsman.providers.runpod import RunpodProvider  # noqa: PLC0415

    url, base = _called(settings), _runpod(settings).options
    if url is None:
        yield findings.fail("provider", "there is no API to call", "set API_URL, or start herdsman up")
        return
    bare = replace(base, start_command=PROBE, activation=(), volumes=(), local_volume_gb=None, ports=())
    provider, name = RunpodProvider(bare, SystemClock()), base.naming.name(f"probe-{token_hex(4)}")
    request = SpawnRequest(
        name=name, worker_id=WorkerId("probe"), pool=DEFAULT_POOL, environment={"PROBE_URL": url}
    )
    pod = provider.spawn(request)
    try:
        said = _answer_of(provider, pod.ref)
    finally:
        provider.terminate(pod.ref)
    gone = provider.find(pod.ref) is None
    yield findings.from_a_pod(url, pod.ref, said, gone=gone)


def _answer_of(provider: "RunpodProvider", ref: InstanceRef) -> str | None:
    """What the pod found; None where it said nothing in time."""
    clock = SystemClock()
    deadline = clock.monotonic() + POD_PATIENCE.total_seconds()
    while clock.monotonic() < deadline:
        for line in provider.logs(ref, 100):
            if line.startswith(PROBED):
                return line.removeprefix(PROBED).strip()
        clock.sleep(timedelta(seconds=1))
    return None


def see_gpus(settings: Settings) -> Iterator[Finding]:
    local, fake = settings.providers.provider == "local", settings.local.fake_gpus
    needed = local and not fake
    yield findings.gpus(
        local=local,
        fake=fake,
        devices=Nvml()().devices if needed else (),
        driver=_driver() if needed else None,
    )


def _driver() -> str | None:
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        said = nvml.nvmlSystemGetDriverVersion()
        return said.decode() if isinstance(said, bytes) else str(said)
    finally:
        nvml.nvmlShutdown()


def see_port(settings: Settings) -> Iterator[Finding]:
    api, there = settings.api, runtime_files(settings).running()
    ours = (
        there.process.pid
        if there is not None and there.process and urlsplit(there.url).port == api.api_port
        else None
    )
    taken = None if ours is not None or api.api_port == 0 else port_fault(api.api_host, api.api_port)
    yield findings.port(api.api_host, api.api_port, ours=ours, taken=taken)


def see_certificate(settings: Settings) -> Iterator[Finding]:
    """Only where the API speaks TLS itself."""
    file, key = settings.api.api_tls_certificate, settings.api.api_tls_key
    if file is None or key is None:
        return
    from herdsman.server.certificate import read_certificate, require_valid  # noqa: PLC0415

    now, found = datetime.now(UTC), read_certificate(Path(file), Path(key))
    require_valid(Path(file), found, now)
    yield findings.certificate(file, found.names, found.ends - now)


def see_server(settings: Settings) -> Iterator[Finding]:
    """Whether our token opens it; only where one is named, or runs here."""
    from herdsman.cli.connection import client_of  # noqa: PLC0415  (it imports the HTTP client)

    there = runtime_files(settings).running()
    url = settings.api.api_url or (there.url if there else None)
    if url is None:
        yield findings.ok("server", "none runs here, and API_URL names none")
        return
    client = client_of(settings, url, timedelta(0))
    try:
        who = client.send(calls.me())
        yield findings.ok("server", f"{url} answers; the token is that of {who.role} {who.name}")
    except HerdsmanError as error:
        said, _, fix = str(error).partition("; ")
        yield findings.fail("server", said, fix or "herdsman token create NAME makes a token")
    finally:
        client.close()


LOOKS: tuple[Look, ...] = (
    see_settings,
    see_versions,
    see_room,
    see_secrets,
    see_database,
    see_redis,
    see_provider,
    see_gpus,
    see_port,
    see_certificate,
    see_server,
)


LONGEST_S = 15.0
_STYLES = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}


def doctor(
    provider: Annotated[
        bool,
        typer.Option(
            "--provider", help="Also check what pods are rented with: account, image, GPUs, volumes."
        ),
    ] = False,
    spend: Annotated[
        bool,
        typer.Option(
            "--spend", help="The same, and rent one pod for some minutes that tries to call the API."
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check settings, disk, database, clock, Redis, provider, GPUs, port, certificate and server, and say how to mend
    them."""
    with step("looking"):
        found = examine((*LOOKS, see_rented) if provider or spend else LOOKS)
    if spend and not any(each.state is State.FAIL and each.about == "provider" for each in found):
        with step("a pod tries to call the API"):
            found += _here(see_from_a_pod)
    if output is Output.JSON:
        bad = any(each.state is State.FAIL for each in found)
        print_json({"ok": not bad, "checks": [asdict(each) for each in found]})
    else:
        _print(found)
    if any(each.state is State.FAIL for each in found):
        raise typer.Exit(1)


def examine(looks: Sequence[Look] = LOOKS, longest_s: float = LONGEST_S) -> list[Finding]:
    """Everything, whatever fails on the way."""
    try:
        settings = load_settings()
    except HerdsmanError as error:
        return [fail("settings", str(error), "herdsman config shows what is set where")]
    return [finding for look in looks for finding in _limited(look, settings, longest_s)]


def _here(look: Look) -> list[Finding]:
    """In this thread, for what it has to undo whatever happens, Ctrl-C included."""
    told = SimpleQueue[Finding | None]()
    _look(look, load_settings(), "provider", told)
    return list(iter(told.get, None))


def _limited(look: Look, settings: Settings, longest_s: float) -> list[Finding]:
    """In a thread of its own: a driver or a server that hangs must not keep the others from being told."""
    about, told = look.__name__.removeprefix("see_"), SimpleQueue[Finding | None]()
    Thread(target=_look, args=(look, settings, about, told), name=about, daemon=True).start()
    found: list[Finding] = []
    with suppress(Empty):
        while (one := told.get(timeout=longest_s)) is not None:
            found.append(one)
        return found
    return [*found, fail(about, f"no answer within {longest_s:g} s", "look whether it hangs, and try again")]


def _look(look: Look, settings: Settings, about: str, told: "SimpleQueue[Finding | None]") -> None:
    try:
        for finding in look(settings):
            told.put(finding)
    except ModuleNotFoundError as error:
        told.put(fail(about, f"the package {error.name} is not installed", "pip install 'herdsman[server]'"))
    except HerdsmanError as error:
        # What to do stands behind a semicolon, where the error knows it.
        said, _, fix = str(error).partition("; ")
        told.put(fail(about, said, fix or _USUAL.get(about, "herdsman config shows what is set where")))
    except Exception as error:  # noqa: BLE001  (the outermost place of this thread)
        told.put(fail(about, f"{type(error).__name__}: {error}", "this is a bug of ours: please report it"))
    finally:
        told.put(None)


_USUAL = {
    "database": "check DATABASE_URL, and that the server runs and lets you in",
    "redis": "check REDIS_URL, and that the server runs; without REDIS_URL, workers ask the database",
    "provider": "check PROVIDER and the key of your account",
    "rented": "check PROVIDER and the key of your account",
    "server": "check API_URL and API_TOKEN",
}


def _print(found: Sequence[Finding]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for each in found:
        console.print(
            Text(f"{each.state:<5}", style=_STYLES[each.state]),
            f"{each.about:<11}",
            Text(printable_lines(each.said)),
        )
        if each.fix:
            console.print(
                Text(printable_lines(f"{'':<17} {each.fix}"), style="" if each.state is State.FAIL else "dim")
            )
    counts = Counter(each.state for each in found)
    console.print(f"{counts[State.OK]} ok, {counts[State.WARN]} to look at, {counts[State.FAIL]} to mend")
