"""Runs GPU jobs to completion on a fleet that it grows, heals and shrinks by itself."""

from importlib import import_module

__version__ = "0.1.0"

_LOOPS = "herdsman.loops"
_CLIENT = "herdsman.client"
_CONTEXT = "herdsman.worker.context"

# Where each public name lives; `__init__.pyi` tells type checkers. Nothing is loaded before it is asked for.
_HOMES = {
    "AdaptiveThreshold": _LOOPS,
    "AsyncClient": _CLIENT,
    "AsyncJobHandle": _CLIENT,
    "AsyncLease": _CLIENT,
    "Cancelled": _CONTEXT,
    "Client": _CLIENT,
    "CrashRecord": _LOOPS,
    "DeadLetter": _LOOPS,
    "DeadLetterPolicy": _LOOPS,
    "HealthServer": _LOOPS,
    "Heartbeat": _LOOPS,
    "InMemoryMailbox": _LOOPS,
    "JobCancelled": _CLIENT,
    "JobContext": _CONTEXT,
    "JobFailed": _CLIENT,
    "JobHandle": _CLIENT,
    "Lease": _CLIENT,
    "LeaseDenied": _CLIENT,
    "LeaseExtender": _LOOPS,
    "LeaseLost": _CLIENT,
    "LoopGroup": _LOOPS,
    "Mailbox": _LOOPS,
    "MainLoop": _LOOPS,
    "MainLoopRequest": _LOOPS,
    "MainLoopResult": _LOOPS,
    "Message": _LOOPS,
    "Runnable": _LOOPS,
    "Setup": _CONTEXT,
    "ShutdownCoordinator": _LOOPS,
    "TryAgain": _CONTEXT,
    "UserError": _CONTEXT,
    "Watchdog": _LOOPS,
    "WorkQueueMailbox": _LOOPS,
    "handler": "herdsman.worker.registry",
    "read_crashes": _LOOPS,
    "replay": _LOOPS,
    "run_loops": _LOOPS,
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
