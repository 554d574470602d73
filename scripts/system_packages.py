"""Installs system packages where we may, and otherwise says exactly what a person has to install."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

APT_INSTALL = Path(__file__).with_name("apt_install")


def install(packages: Sequence[str], *, needed: str) -> None:
    """Install `packages`, or end the program with a message: it never goes on without what is `needed`."""
    root = as_root()
    if shutil.which("apt-get") is None or root is None:
        sys.exit(f"{needed}. Install it and run this again: {by_hand(packages)}")
    print(f"{needed}: installing {' '.join(packages)}", flush=True)
    done = subprocess.run([*root, "sh", str(APT_INSTALL), *packages], check=False)
    if done.returncode != 0:
        sys.exit(f"{needed}, and installing it failed. Try by hand: {by_hand(packages)}")


def as_root() -> list[str] | None:
    """How to run a command as root without being asked for a password; None where we may not."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo is None or subprocess.run([sudo, "-n", "true"], check=False, capture_output=True).returncode != 0:
        return None
    return [sudo, "-n"]


def by_hand(packages: Sequence[str]) -> str:
    if shutil.which("apt-get") is None:
        return f"your system's equivalents of the Debian packages {', '.join(packages)}"
    return f"sudo apt-get install {' '.join(packages)}"
