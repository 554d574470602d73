"""Jobs that run on an external service: submitted once, watched, and their results never lost."""

from herdsman.worker.service.monitor import HealthMonitor, Stall, Watching
from herdsman.worker.service.run import ServiceRun

__all__ = ["HealthMonitor", "ServiceRun", "Stall", "Watching"]
