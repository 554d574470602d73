"""What commands begin with that work on the database itself. Loading it takes a while."""

from herdsman.cli.opening import settings_here
from herdsman.control.services import Services
from herdsman.db.checks import require_current
from herdsman.server.wiring import open_services
from herdsman.settings import Settings


def services_here(settings: Settings | None = None) -> Services:
    """The commands, on a database that is known to be in order."""
    services = open_services(settings or settings_here())
    require_current(services.database)
    return services
