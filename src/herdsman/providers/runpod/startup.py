"""The command that a pod runs: into the volume, activate, start."""

import shlex

from herdsman.providers.runpod.options import RunpodOptions

# Not a login shell: that would replace the PATH that the image has set.
_SHELL = ("bash", "-c")


def render_startup(options: RunpodOptions) -> str:
    """The script that a pod runs, for a person to read; empty where the image runs its own command."""
    return " &&\n".join(_steps(options))


def startup_fields(options: RunpodOptions) -> dict[str, object]:
    """The start command as the fields of a create request."""
    command = options.start_command
    if command is None:
        return {}
    script = " && ".join(_steps(options))
    if isinstance(command, str):
        return {"args": shlex.join((*_SHELL, script))}
    wrapped = bool(options.activation) or _has_volume(options)
    return {"cmd": [*_SHELL, script] if wrapped else list(command)}


def _steps(options: RunpodOptions) -> tuple[str, ...]:
    command = options.start_command
    if command is None:
        return ()
    enter = (f"cd {shlex.quote(options.mount_path)}",) if _has_volume(options) else ()
    # A shell line may be several commands; a single program takes the shell's place, and so gets its signals.
    start = command if isinstance(command, str) else f"exec {shlex.join(command)}"
    return (*enter, *options.activation, start)


def _has_volume(options: RunpodOptions) -> bool:
    return bool(options.volumes) or options.local_volume_gb is not None
