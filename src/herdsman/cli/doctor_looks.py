"""What `herdsman doctor` looks at: each look asks the world one thing, and may fail."""

import importlib
import sqlite3
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from herdsman import __version__
from herdsman.cli import findings
from herdsman.cli.door import Door
from herdsman.cli.findings import Finding
from herdsman.cli.own_machine import port_fault
from herdsman.cli.room import free_bytes, places, sqlite_file, write_fault
from herdsman.control.whereabouts import Announced, shown_database, whereabouts
from herdsman.core.errors import HerdsmanError
from herdsman.settings import Settings, advice
from herdsman.worker.gpu import Nvml

if TYPE_CHECKING:
    from herdsman.store.database import Database

SILENCE = timedelta(seconds=3)

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
    where = whereabouts(settings)
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
    from herdsman.store.revisions import latest, schema_fault  # noqa: PLC0415
    from herdsman.store.server import inspect_server  # noqa: PLC0415  (a worker's machine has no database)
    from herdsman.wiring import open_database  # noqa: PLC0415

    database = open_database(settings)
    try:
        server = inspect_server(database)
        yield findings.ok("database", f"{server} at {shown_database(settings)}")
        for warning in server.warnings:
            yield findings.warn("database", warning, "docs/databases.md says what is checked, and why")
        yield findings.schema(schema_fault(database), latest())
        yield findings.clock(_skew(database), database.backend)
    finally:
        database.close()


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
    from herdsman.bus.connection import check_version, connect  # noqa: PLC0415  (the library is an extra)
    from herdsman.bus.faults import translated  # noqa: PLC0415

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
    from herdsman.wiring import open_provider  # noqa: PLC0415

    listed = open_provider(settings).list_instances()
    yield findings.ok("provider", f"{name} answers, and lists {len(listed)} instances of ours")


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
    api, there = settings.api, whereabouts(settings).running()
    ours = there.process.pid if there is not None and there.process and _port(there) == api.api_port else None
    taken = None if ours is not None or api.api_port == 0 else port_fault(api.api_host, api.api_port)
    yield findings.port(api.api_host, api.api_port, ours=ours, taken=taken)


def _port(there: Announced) -> int | None:
    return urlsplit(there.url).port


def see_server(settings: Settings) -> Iterator[Finding]:
    """Whether our token opens it; only where one is named, or runs here."""
    from herdsman.cli.opening import over_http  # noqa: PLC0415  (it imports the HTTP client)

    there = whereabouts(settings).running()
    url = settings.api.api_url or (there.url if there else None)
    if url is None:
        yield findings.ok("server", "none runs here, and API_URL names none")
        return
    door: Door = over_http(settings, url, timedelta(0))
    try:
        who = door.me()
        yield findings.ok("server", f"{url} answers; the token is that of {who.role} {who.name}")
    except HerdsmanError as error:
        said, _, fix = str(error).partition("; ")
        yield findings.fail("server", said, fix or "herdsman token create NAME makes a token")
    finally:
        door.close()


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
    see_server,
)
