"""Loops that show that they live, the watchdog that ends a process where one does not, and probes for the outside."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herdsman.loops.crash_report import CrashRecord, read_crashes
    from herdsman.loops.health import HealthServer
    from herdsman.loops.heartbeat import AdaptiveThreshold, Heartbeat, Runnable
    from herdsman.loops.loop_group import LoopGroup, run_loops
    from herdsman.loops.mailbox import (
        DeadLetter,
        DeadLetterPolicy,
        InMemoryMailbox,
        Mailbox,
        MainLoopRequest,
        MainLoopResult,
        Message,
        replay,
    )
    from herdsman.loops.main_loop import LeaseExtender, MainLoop
    from herdsman.loops.shutdown import ShutdownCoordinator
    from herdsman.loops.watchdog import Notifier, Watchdog
    from herdsman.loops.work_queue_mailbox import WorkQueueMailbox

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
_MODULES = {
    "crash_report": "CrashRecord read_crashes",
    "health": "HealthServer",
    "heartbeat": "AdaptiveThreshold Heartbeat Runnable",
    "loop_group": "LoopGroup run_loops",
    "mailbox": "DeadLetter DeadLetterPolicy InMemoryMailbox Mailbox MainLoopRequest MainLoopResult Message replay",
    "main_loop": "LeaseExtender MainLoop",
    "shutdown": "ShutdownCoordinator",
    "watchdog": "Notifier Watchdog",
    "work_queue_mailbox": "WorkQueueMailbox",
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
