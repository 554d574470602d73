"""Runs GPU jobs to completion on a fleet that it grows, heals and shrinks by itself."""

from importlib import import_module

__version__ = "0.1.0"

# Where the public names live; `__init__.pyi` tells type checkers. Nothing is loaded before it is asked for.
_NAMES = {
    "herdsman.loops": (
        "AdaptiveThreshold CrashRecord DeadLetter DeadLetterPolicy HealthServer Heartbeat "
        "InMemoryMailbox LeaseExtender LoopGroup Mailbox MainLoop MainLoopRequest MainLoopResult Message "
        "Runnable ShutdownCoordinator Watchdog WorkQueueMailbox read_crashes replay run_loops"
    ),
    "herdsman.client": (
        "AsyncClient AsyncJobHandle AsyncLease Client JobCancelled JobFailed JobHandle Lease LeaseDenied LeaseLost"
    ),
    "herdsman.worker.context": "Cancelled JobContext Setup TryAgain UserError",
    "herdsman.worker.registry": "handler",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
