"""One replica of the control plane on this machine, from its start to its end: API and control loop."""

from datetime import timedelta
from threading import Event

from herdsman.api.opening import Api, open_api
from herdsman.cli.context import Stopping
from herdsman.cli.greeting import tell_api, tell_database, tell_fleet, tell_next, tell_when_ready
from herdsman.cli.output import echo, step
from herdsman.control.commands import count_jobs
from herdsman.control.first_token import first_admin_token
from herdsman.control.services import Services
from herdsman.control.whereabouts import shown_database, whereabouts
from herdsman.control.worker_access import WorkerAccess
from herdsman.core.errors import HerdsmanError
from herdsman.settings import Origin, Settings
from herdsman.settings.local import LOCAL
from herdsman.store import sight
from herdsman.wiring import Control, open_control, open_keyring, open_service, stored_logs

LOOK_OFTEN = timedelta(seconds=1)
_GLANCE_S = 0.2


def run(settings: Settings, services: Services, schema: str, command: str) -> str:
    """Until it is told to stop; then how many jobs there are."""
    try:
        with stored_logs(settings, services.database):
            return _run(settings, services, schema, command)
    finally:
        services.database.close()


def _run(settings: Settings, services: Services, schema: str, command: str) -> str:
    tell_database(services, schema)
    keyring, where = open_keyring(settings, services), whereabouts(settings)
    url = settings.api.api_url
    access = WorkerAccess(services=services, keyring=keyring, url=lambda: url or api.server.url)
    control = open_control(settings, services, access)
    api = open_api(settings, services, keyring, control)
    with step("starting the API"):
        api.start()
        secret = first_admin_token(services, keyring, where.admin_token)
    stopping = Stopping()  # before anybody is told to type Ctrl-C
    try:
        where.announce(api.server.url, shown_database(settings), command)
        tell_api(api.server.url, secret, where.admin_token)
        tell_fleet(services, settings)
        tell_next()
        tell_when_ready(services, settings, stopping)
        services.database.in_service = True
        with where.occupied(control.leadership.holder):
            _serve(settings, services, control, api, stopping)
    finally:
        _send_home(control, stopping)
        where.withdraw()
        api.stop()
        kept = _kept(services) + _rented(control, services)
    return kept


def _kept(services: Services) -> str:
    try:
        counts = {state: count for state, count in count_jobs(services).items() if count}
    except HerdsmanError:
        return ""
    return f": {', '.join(f'{count} {state}' for state, count in counts.items())}" if counts else ""


def _rented(control: Control, services: Services) -> str:
    """What goes on costing money when nobody is there to end it."""
    if control.provider.name == LOCAL:
        return ""
    try:
        left = sum(
            each.alive and bool(each.instance_name) for each in services.database.read(sight.see_workers)
        )
    except HerdsmanError:
        return ""
    if not left:
        return ""
    name = control.provider.name
    goes_on = (
        f"1 machine of {name} runs on and is" if left == 1 else f"{left} machines of {name} run on and are"
    )
    return f"; {goes_on} billed until a control plane ends them"


def _serve(settings: Settings, services: Services, control: Control, api: Api, stopping: Event) -> None:
    service = open_service(settings, services, control, poll=_poll(settings), on_queued=api.queued)
    service.run(stopping)


def _poll(settings: Settings) -> timedelta:
    """Looking at processes of this machine costs nothing, so a worker need not wait to be noticed."""
    chosen = timedelta(seconds=settings.health.orchestrator_poll_sec)
    usual = settings.origin("ORCHESTRATOR_POLL_SEC") is Origin.DEFAULT
    return min(chosen, LOOK_OFTEN) if usual and settings.providers.provider == "local" else chosen


def _send_home(control: Control, stopping: Stopping) -> None:
    """Workers of this machine finish the job they hold and leave; rented machines are left to the next leader."""
    provider, told = control.provider, 0
    if provider.name != "local":
        return
    while workers := provider.list_instances():
        if told != stopping.asked or not told:
            told = stopping.asked or 1
            for worker in workers:
                provider.terminate(worker.ref)
            what = "finish their jobs and leave" if told == 1 else "give their jobs back and leave"
            echo(f"{len(workers)} workers of this machine {what}; Ctrl-C again does not wait for them")
        if told > 2:
            return
        Event().wait(_GLANCE_S)
