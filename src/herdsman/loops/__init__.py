"""Loops that show that they live, the watchdog that ends a process where one does not, and probes for the outside."""

from herdsman.loops.health import HealthServer
from herdsman.loops.heartbeat import AdaptiveThreshold, Heartbeat, Runnable
from herdsman.loops.loop_group import LoopGroup, ShutdownCoordinator, run_loops
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
from herdsman.loops.watchdog import CrashRecord, Notifier, Watchdog, read_crashes
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
