"""Where a private server keeps its data, and on which port it listens."""

import os
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

from herdsman.testing.servers.programs import Account, ServerStartError

# Below the range that the kernel takes for outgoing connections: nobody grabs the port during a restart.
PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class Home:
    """A directory for one server. `scratch` is set where we made it ourselves and must remove it."""

    path: Path
    account: Account | None
    scratch: Path | None = None

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    @property
    def data(self) -> Path:
        return self.path / "data"

    def make_data(self) -> None:
        self.data.mkdir(mode=0o700)
        if self.account is not None:
            os.chown(self.data, self.account.uid, self.account.gid)

    def remove_scratch(self) -> None:
        if self.scratch is not None:
            shutil.rmtree(self.scratch)


def make_home(directory: Path | None, account: Account | None) -> Home:
    """Use `directory` if the server can reach it. Tests run by root have directories that only root can enter."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        if account is None or _open_to_all(directory.resolve()):
            return Home(directory.resolve(), account)
    scratch = Path(tempfile.mkdtemp(prefix="herdsman-", dir="/tmp"))
    scratch.chmod(0o755)
    return Home(scratch, account, scratch)


def _open_to_all(directory: Path) -> bool:
    return all(place.stat().st_mode & 0o001 for place in (directory, *directory.parents))


def free_port() -> int:
    # From the system's randomness: tests seed Python's own, and two runs at once would choose alike.
    for port in SystemRandom().sample(PORTS, k=100):
        if _binds(port):
            return port
    raise ServerStartError(f"a hundred ports between {PORTS[0]} and {PORTS[-1]} are all in use")


def _binds(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
