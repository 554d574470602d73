"""Loops that show that they live, the watchdog that ends a process where one does not, and probes for the outside."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herdsman.worker.loops.adaptive import AdaptiveThreshold
    from herdsman.worker.loops.crash import CrashRecord, read_crashes
    from herdsman.worker.loops.dead_letters import DeadLetter, DeadLetterPolicy, replay
    from herdsman.worker.loops.health_server import HealthServer
    from herdsman.worker.loops.heartbeat import Heartbeat
    from herdsman.worker.loops.lease_extender import LeaseExtender
    from herdsman.worker.loops.loop_group import LoopGroup, run_loops
    from herdsman.worker.loops.mailbox import Mailbox, Message
    from herdsman.worker.loops.main_loop import MainLoop
    from herdsman.worker.loops.memory_mailbox import InMemoryMailbox
    from herdsman.worker.loops.requests import MainLoopRequest, MainLoopResult
    from herdsman.worker.loops.runnable import Runnable
    from herdsman.worker.loops.shutdown import ShutdownCoordinator
    from herdsman.worker.loops.systemd import Notifier
    from herdsman.worker.loops.watchdog import Watchdog
    from herdsman.worker.loops.work_queue_mailbox import WorkQueueMailbox

__all__ = [
    "AdaptiveThreshold",
    "CrashRecord",
    "DeadLetter",
    "DeadLetterPolicy",
    "HealthServer",
    "Heartbeat",
    "InMemoryMailbox",
    "LeaseExtender",
    "LoopGroup",
    "Mailbox",
    "MainLoop",
    "MainLoopRequest",
    "MainLoopResult",
    "Message",
    "Notifier",
    "Runnable",
    "ShutdownCoordinator",
    "Watchdog",
    "WorkQueueMailbox",
    "read_crashes",
    "replay",
    "run_loops",
]

# Each name is loaded when it is asked for: who wants a heartbeat does not pay for a server.
_HOMES = {
    "AdaptiveThreshold": "adaptive",
    "CrashRecord": "crash",
    "DeadLetter": "dead_letters",
    "DeadLetterPolicy": "dead_letters",
    "HealthServer": "health_server",
    "Heartbeat": "heartbeat",
    "InMemoryMailbox": "memory_mailbox",
    "LeaseExtender": "lease_extender",
    "LoopGroup": "loop_group",
    "Mailbox": "mailbox",
    "MainLoop": "main_loop",
    "MainLoopRequest": "requests",
    "MainLoopResult": "requests",
    "Message": "mailbox",
    "Notifier": "systemd",
    "Runnable": "runnable",
    "ShutdownCoordinator": "shutdown",
    "Watchdog": "watchdog",
    "WorkQueueMailbox": "work_queue_mailbox",
    "read_crashes": "crash",
    "replay": "dead_letters",
    "run_loops": "loop_group",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
