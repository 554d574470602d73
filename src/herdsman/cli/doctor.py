"""`herdsman doctor`: checks everything that this machine needs, and says how to fix what is wrong."""

import importlib
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from platform import python_version
from queue import Empty, SimpleQueue
from secrets import token_hex
from sqlite3 import sqlite_version
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.text import Text

from herdsman import __version__
from herdsman.cli import findings
from herdsman.cli.findings import Finding, State, fail, ok, warn
from herdsman.cli.machine import free_bytes, places, port_fault, sqlite_file, write_fault
from herdsman.cli.output import Output, OutputOption, counted, printed_json, step
from herdsman.client import calls
from herdsman.errors import HerdsmanError
from herdsman.fleet.model import InstanceRef, SpawnRequest, moved
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
"""How long a pod may take to pull its image and call us."""
PROBED = "herdsman-probe:"
PROBE = Path(__file__).with_name("probe.sh").read_text().rstrip()
"""With what an image has: curl, or Python. It sleeps afterwards, since a container that exits is started again."""

Check = Callable[[Settings], Iterator[Finding]]


def check_settings(settings: Settings) -> Iterator[Finding]:
    warnings = list(advice(settings))
    for each in warnings:
        yield warn("settings", each, "herdsman config --explain shows the numbers")
    if not warnings:
        yield ok("settings", "consistent")


def check_versions(_: Settings) -> Iterator[Finding]:
    # An older Python cannot even load this module.
    yield ok("versions", f"Herdsman {__version__}, Python {python_version()}, SQLite {sqlite_version}")


def check_room(settings: Settings) -> Iterator[Finding]:
    for place in places(settings):
        yield findings.room(place, write_fault(place), free_bytes(place.directory))


def check_secrets(settings: Settings) -> Iterator[Finding]:
    where = runtime_files(settings)
    for path in (where.admin_token, where.pepper):
        yield findings.secret_file(path, path.stat().st_mode if path.exists() else None)


def check_database(settings: Settings) -> Iterator[Finding]:
    """A SQLite file that does not exist is not created."""
    file = sqlite_file(settings)
    if settings.api.api_url is not None and (file is None or not file.exists()):
        yield ok("database", f"not checked: API_URL names a server, {settings.api.api_url}")
        return
    if file is not None and not file.exists():
        yield warn("database", f"{file} does not exist yet", "herdsman up creates it")
        return
    from herdsman.db import checks  # noqa: PLC0415  (a worker's machine has no database)
    from herdsman.server.wiring import open_database  # noqa: PLC0415

    database = open_database(settings)
    try:
        server = checks.inspect_server(database)
        yield ok("database", f"{server} at {shown_database(settings)}")
        for warning in (*server.warnings, *server.notes):
            yield warn("database", warning, "see docs/databases.md")
        checks.require_undamaged(database)
        fault = checks.schema_fault(database)
        yield findings.schema(fault, checks.latest())
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


def check_redis(settings: Settings) -> Iterator[Finding]:
    url = settings.streams.redis_url
    if url is None:
        yield ok("redis", "not used: workers get jobs from the database")
        return
    from herdsman.redis.redis_client import check_version, connect, translated  # noqa: PLC0415  (the library is an extra)

    client = connect(url.get_secret_value(), SILENCE)
    try:
        with translated():
            client.ping()
        check_version(client)
        yield ok("redis", "answers")
    finally:
        client.close()


def check_provider(settings: Settings) -> Iterator[Finding]:
    """The API of a rented fleet is called only where there is a key."""
    name, key = settings.providers.provider, settings.runpod.runpod_api_key
    if key is not None:
        yield findings.runpod_key(key.get_secret_value())
    if name == "local":
        yield ok("provider", "local: workers are processes of this machine")
        return
    if (fault := address_fault(settings)) is not None:
        yield fail("provider", *fault.rsplit(": ", 1))
    from herdsman.server.wiring import open_provider  # noqa: PLC0415

    listed = open_provider(settings).list_instances()
    yield ok("provider", f"{name} answers and lists {len(listed)} instances of ours")


def check_rented(settings: Settings) -> Iterator[Finding]:
    """The parts of a pod, as far as they can be checked without renting one."""
    if settings.providers.provider != "runpod":
        yield ok("provider", f"{settings.providers.provider} has nothing more to check")
        return
    provider = _runpod(settings)
    api, options = provider, provider.options
    # Runpod's API does not return the balance: a pod is simply refused when it is too low.
    yield ok(
        "provider",
        f"the key is accepted; the account's pods cost {api.spent_lately():.2f} USD in the last 24 hours."
        " The balance can only be tested by renting: doctor --spend",
    )
    yield findings.image(options.image, options.template_id)
    yield from findings.gpu_types(options.gpu_types, api.list_gpu_types(options.cloud), options.cloud)
    yield from findings.volumes(options.volumes, api.list_volumes())
    yield _address(settings)


def _runpod(settings: Settings) -> "RunpodProvider":
    from herdsman.providers.runpod import RunpodProvider  # noqa: PLC0415  (the library is an extra)
    from herdsman.server.wiring import open_provider  # noqa: PLC0415

    provider = open_provider(settings)
    assert isinstance(provider, RunpodProvider)
    return provider


def _called(settings: Settings) -> str | None:
    """The address that a pod would call; None where it is not known yet."""
    there = runtime_files(settings).running()
    return settings.api.api_url or (there.url if there is not None and on_this_machine(settings) else None)


def _address(settings: Settings) -> Finding:
    import httpx  # noqa: PLC0415

    url = _called(settings)
    if url is None or address_fault(settings) is not None:
        return warn("provider", "it is unknown whether pods reach the API", "set API_URL, or start herdsman up")
    try:
        answer = httpx.get(f"{url}/health/live", timeout=SILENCE.total_seconds()).status_code
        addresses = {str(each[4][0]) for each in socket.getaddrinfo(urlsplit(url).hostname, None)}
    except (httpx.HTTPError, OSError) as error:
        return fail("provider", f"{url} does not answer: {error}", "check API_URL, the proxy and the firewall")
    return findings.address(url, answer, addresses, here=on_this_machine(settings))


def check_from_a_pod(settings: Settings) -> Iterator[Finding]:
    """Rents one pod, which logs whether it reached the API, and is terminated whatever happens."""
    from herdsman.providers.runpod import RunpodProvider  # noqa: PLC0415

    url, base = _called(settings), _runpod(settings).options
    if url is None:
        yield fail("provider", "there is no API to call", "set API_URL, or start herdsman up")
        return
    bare = replace(base, start_command=PROBE, activation=(), volumes=(), local_volume_gb=None, ports=())
    provider, name = RunpodProvider(bare, SystemClock()), base.naming.name(f"probe-{token_hex(4)}")
    request = SpawnRequest(name=name, worker_id=WorkerId("probe"), pool=DEFAULT_POOL, environment={"PROBE_URL": url})
    pod = provider.spawn(request)
    try:
        said = _answer_of(provider, pod.ref)
    finally:
        provider.terminate(pod.ref)
    gone = provider.find(pod.ref) is None
    yield findings.from_a_pod(url, pod.ref, said, gone=gone)


def _answer_of(provider: "RunpodProvider", ref: InstanceRef) -> str | None:
    """What the pod logged; None where it logged nothing in time."""
    clock = SystemClock()
    deadline = clock.monotonic() + POD_PATIENCE.total_seconds()
    while clock.monotonic() < deadline:
        for line in provider.logs(ref, 100):
            if line.startswith(PROBED):
                return line.removeprefix(PROBED).strip()
        clock.sleep(timedelta(seconds=1))
    return None


def check_gpus(settings: Settings) -> Iterator[Finding]:
    local, fake = settings.providers.provider == "local", settings.local.fake_gpus
    needed = local and not fake
    yield findings.gpus(
        local=local, fake=fake, devices=Nvml()().devices if needed else (), driver=_driver() if needed else None
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


def check_port(settings: Settings) -> Iterator[Finding]:
    api, there = settings.api, runtime_files(settings).running()
    ours = (
        there.process.pid if there is not None and there.process and urlsplit(there.url).port == api.api_port else None
    )
    taken = None if ours is not None or api.api_port == 0 else port_fault(api.api_host, api.api_port)
    yield findings.port(api.api_host, api.api_port, ours=ours, taken=taken)


def check_certificate(settings: Settings) -> Iterator[Finding]:
    """Only where the API speaks TLS itself."""
    file, key = settings.api.api_tls_certificate, settings.api.api_tls_key
    if file is None or key is None:
        return
    from herdsman.server.certificate import read_certificate, require_valid  # noqa: PLC0415

    now, found = datetime.now(UTC), read_certificate(Path(file), Path(key))
    require_valid(Path(file), found, now)
    yield findings.certificate(file, found.names, found.ends - now)


def check_server(settings: Settings) -> Iterator[Finding]:
    """Whether it accepts our token; only where one is named, or runs here."""
    from herdsman.cli.connect import client_of  # noqa: PLC0415  (it imports the HTTP client)

    there = runtime_files(settings).running()
    url = settings.api.api_url or (there.url if there else None)
    if url is None:
        yield ok("server", "none runs here, and API_URL is not set")
        return
    client = client_of(settings, url, timedelta(0))
    try:
        who = client.send(calls.me())
        yield ok("server", f"{url} answers; the token is that of {who.role} {who.name}")
    except HerdsmanError as error:
        said, _, fix = str(error).partition("; ")
        yield fail("server", said, fix or "herdsman token create NAME creates a token")
    finally:
        client.close()


CHECKS: tuple[Check, ...] = (
    check_settings,
    check_versions,
    check_room,
    check_secrets,
    check_database,
    check_redis,
    check_provider,
    check_gpus,
    check_port,
    check_certificate,
    check_server,
)


LONGEST_S = 15.0
_STYLES = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}


def doctor(
    provider: Annotated[
        bool, typer.Option("--provider", help="Also check what pods need: account, image, GPU types, volumes.")
    ] = False,
    spend: Annotated[
        bool, typer.Option("--spend", help="The same, and rent one pod for a few minutes that tries to call the API.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    with step("checking"):
        found = examine((*CHECKS, check_rented) if provider or spend else CHECKS)
    if spend and not any(each.status is State.FAIL and each.about == "provider" for each in found):
        results = SimpleQueue[Finding | None]()
        with step("a pod tries to call the API"):
            # In this thread, so that Ctrl-C terminates the pod, too.
            _run(check_from_a_pod, load_settings(), "provider", results)
        found += iter(results.get, None)
    failed = any(each.status is State.FAIL for each in found)
    if not printed_json(output, {"ok": not failed, "checks": found}):
        _print(found)
    if failed:
        raise typer.Exit(1)


def examine(checks: Sequence[Check] = CHECKS, longest_s: float = LONGEST_S) -> list[Finding]:
    """All findings, whichever check fails."""
    try:
        settings = load_settings()
    except HerdsmanError as error:
        return [fail("settings", str(error), "herdsman config shows what is set where")]
    return [finding for check in checks for finding in _limited(check, settings, longest_s)]


def _limited(check: Check, settings: Settings, longest_s: float) -> list[Finding]:
    """In a thread of its own: a driver or a server that hangs must not stop the other checks."""
    about, results = check.__name__.removeprefix("check_"), SimpleQueue[Finding | None]()
    Thread(target=_run, args=(check, settings, about, results), name=about, daemon=True).start()
    found: list[Finding] = []
    with suppress(Empty):
        while (one := results.get(timeout=longest_s)) is not None:
            found.append(one)
        return found
    return [*found, fail(about, f"no answer within {longest_s:g} s", "check whether it hangs, and try again")]


def _run(check: Check, settings: Settings, about: str, results: "SimpleQueue[Finding | None]") -> None:
    try:
        for finding in check(settings):
            results.put(finding)
    except ModuleNotFoundError as error:
        results.put(fail(about, f"the package {error.name} is not installed", "pip install 'herdsman[server]'"))
    except HerdsmanError as error:
        # Where the error names the fix, it is after a semicolon.
        said, _, fix = str(error).partition("; ")
        results.put(fail(about, said, fix or _USUAL.get(about, "herdsman config shows what is set where")))
    except Exception as error:  # noqa: BLE001  (the outermost place of this thread)
        results.put(fail(about, f"{type(error).__name__}: {error}", "this is a bug in Herdsman: please report it"))
    finally:
        results.put(None)


_USUAL = {
    "database": "check DATABASE_URL, and that the server runs and accepts your login",
    "redis": "check REDIS_URL, and that the server runs; without REDIS_URL, workers get jobs from the database",
    "provider": "check PROVIDER and the key of your account",
    "rented": "check PROVIDER and the key of your account",
    "server": "check API_URL and API_TOKEN",
}


def _print(found: Sequence[Finding]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for each in found:
        status = Text(f"{each.status:<5}", style=_STYLES[each.status])
        console.print(status, f"{each.about:<11}", Text(printable_lines(each.said)))
        if each.fix:
            style = "" if each.status is State.FAIL else "dim"
            console.print(Text(printable_lines(f"{'':<17} {each.fix}"), style=style))
    counts = Counter(each.status for each in found)
    warnings = counted(counts[State.WARN], "warning")
    console.print(f"{counts[State.OK]} ok, {warnings}, {counts[State.FAIL]} failed")
