"""What the private servers have in common: programs, a home, a port, and a life that a test can cut short."""

import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import SystemRandom
from signal import SIGTERM, Signals
from types import TracebackType
from typing import ClassVar, Self

from tests.support.servers.process import Account, ServerProcess, ServerStartError, run_to_end, tail

HOST = "127.0.0.1"
STARTING = timedelta(seconds=60)
STEP = timedelta(milliseconds=50)
# Below the range that the kernel takes for outgoing connections: nobody grabs the port during a restart.
PORTS = range(20_000, 32_000)


class PrivateServer(ABC):
    """A server of one's own, on a free loopback port, ended with the block or with the tests.

    `directory` receives the data and the log; without it, or where the server's account cannot reach it, they
    live in a temporary directory that is removed at the end. Unless `durable`, a write may be lost when the
    machine loses power, but not when the server is killed. `options` are added to the server's command line.
    """

    program: ClassVar[str]
    stop_signal: ClassVar[Signals] = SIGTERM
    refuses_root: ClassVar[bool] = False

    def __init__(self, directory: Path | None = None, *, durable: bool = False, options: Sequence[str] = ()) -> None:
        self.version = version_of(self.program)
        self.port = free_port()
        self.durable = durable
        self._options = tuple(options)
        self.home = make_home(directory, account_instead_of_root() if self.refuses_root else None)
        self._process: ServerProcess | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Returns when the server answers, on the same port and with the same data as before."""
        assert self._process is None, "the server is running already"
        if not self.home.data.exists():
            self.home.make_data()
            self._prepare()
        self._process = ServerProcess(
            [*self._command(), *self._options],
            log=self.home.log,
            account=self.home.account,
            stop_signal=self.stop_signal,
            scratch=self.home.scratch,
        )
        deadline = time.monotonic() + STARTING.total_seconds()
        while not self._answers():
            if self._process.ended() or time.monotonic() > deadline:
                self.kill()
                raise ServerStartError(f"{self.program} did not start:\n{tail(self.home.log)}")
            time.sleep(STEP.total_seconds())

    def stop(self) -> None:
        """The orderly end. Nothing happens where the server has ended already."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def close(self) -> None:
        """The end for good: the data goes too, where its place was ours."""
        self.stop()
        self.home.remove_scratch()

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """The sudden end; `start` brings the server back."""
        self._running().kill()
        self._process = None

    def pause(self) -> None:
        """Connections stay open and nothing answers, as when a network swallows packets."""
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _prepare(self) -> None:
        """Fill the empty data directory."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether our server answers, known by its data: another may have taken the port first."""

    def _run(self, command: list[str]) -> None:
        run_to_end(command, log=self.home.log, account=self.home.account)

    def _running(self) -> ServerProcess:
        assert self._process is not None, "the server is not running"
        return self._process


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
        path = directory.resolve()
        if account is None or all(place.stat().st_mode & 0o001 for place in (path, *path.parents)):
            return Home(path, account)
    scratch = Path(tempfile.mkdtemp(prefix="herdsman-", dir="/tmp"))
    scratch.chmod(0o755)
    return Home(scratch, account, scratch)


def free_port() -> int:
    # From the system's randomness: tests seed Python's own, and two runs at once would choose alike.
    for port in SystemRandom().sample(PORTS, k=100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise ServerStartError(f"a hundred ports between {PORTS[0]} and {PORTS[-1]} are all in use")


def find_program(name: str) -> Path | None:
    """Also looks where a person's PATH does not: in /usr/sbin, and among Debian's PostgreSQL versions."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda programs: float(programs.parent.name),
        reverse=True,
    )
    elsewhere = os.pathsep.join(map(str, (*versions, "/usr/sbin", "/usr/local/sbin")))
    found = shutil.which(name) or shutil.which(name, path=elsewhere)
    return Path(found) if found else None


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
