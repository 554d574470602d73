"""What stands before the command of a handler's process where it may see nothing of ours: bubblewrap or unshare."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from herdsman.errors import InvalidSettings

_EMPTY = ".empty"
"""Stands in the place of files that a sandbox hides; in the directory of a handler, until that is tidied up."""


def require_sandbox() -> None:
    """`InvalidSettings` where this machine has no tool to make one with."""
    if shutil.which("bwrap") is None and shutil.which("unshare") is None:
        raise InvalidSettings("a sandbox needs bubblewrap (bwrap) or unshare: install one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A handler sees its workspace, and the rest of the machine as it is for reading; of us, nothing: no process, no
    file below these places."""

    hidden: Sequence[Path]
    """Directories and files that hold what is ours: state, database, settings, temporary files."""

    def words(self, home: Path) -> list[str]:
        """What stands before the command of a handler's process; its own directory is `home`."""
        folders = [str(place) for place in self.hidden if place.is_dir()]
        files = [str(place) for place in self.hidden if place.is_file()]
        require_sandbox()
        empty = home / _EMPTY
        empty.touch()
        if (bwrap := shutil.which("bwrap")) is not None:
            options = "--die-with-parent --unshare-pid --unshare-ipc --cap-drop ALL --ro-bind / / --dev-bind /dev /dev"
            return [
                bwrap,
                *options.split(),
                *("--proc", "/proc"),
                *(word for place in folders for word in ("--tmpfs", place)),
                *(word for place in files for word in ("--ro-bind", str(empty), place)),
                *("--bind", str(home), str(home)),
                "--",
            ]
        root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        # The directory of the handler is reached through a way that its own mounts do not cover.
        script = (
            'exec 9<"$1"; shift; while [ "$1" != -- ]; do if [ -d "$1" ]; then mount -t tmpfs none "$1"; else'
            ' mount --bind /proc/self/fd/9/.empty "$1"; fi; shift; done; shift; home=$1; shift; mkdir -p "$home";'
            ' mount --bind /proc/self/fd/9 "$home"; exec 9<&-; "$@"; exit $?'
        )
        return [
            "unshare",
            *root,
            *["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
            *("sh", "-ec", script, "sh", str(home), *folders, *files, "--", str(home)),
        ]
