"""Finds the programs that a server is made of, and whom to run them as."""

import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


class ServerStartError(Exception):
    """A server could not be started; the message ends with what it said itself."""


@dataclass(frozen=True)
class Account:
    """A system user other than root."""

    uid: int
    gid: int


def find_program(name: str) -> Path | None:
    """Also looks where a person's PATH does not: in /usr/sbin, and among Debian's PostgreSQL versions."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major, reverse=True)
    elsewhere = os.pathsep.join(map(str, (*versions, "/usr/sbin", "/usr/local/sbin")))
    found = shutil.which(name) or shutil.which(name, path=elsewhere)
    return Path(found) if found else None


def _major(programs: Path) -> float:
    return float(programs.parent.name)


def program(name: str) -> str:
    found = find_program(name)
    if found is None:
        raise ServerStartError(f"{name} is not installed: `make servers` installs it")
    return str(found)


def version_of(name: str) -> str:
    said = subprocess.run([program(name), "--version"], check=True, capture_output=True, text=True).stdout
    numbers = re.search(r"\d+(\.\d+)+", said)
    if numbers is None:
        raise ServerStartError(f"{name} does not say its version: {said!r}")
    return numbers[0]


def account_instead_of_root() -> Account | None:
    """For a server that refuses to run as root; None where we are not root ourselves."""
    if os.geteuid() != 0:
        return None
    users = {user.pw_name: user for user in pwd.getpwall()}
    chosen = users.get("postgres") or users["nobody"]
    return Account(chosen.pw_uid, chosen.pw_gid)
