"""What the private servers have in common: a home, a port, and a life that a test can cut short."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from signal import SIGTERM, Signals
from types import TracebackType
from typing import ClassVar, Self

from herdsman.testing.servers.home import free_port, make_home
from herdsman.testing.servers.process import ServerProcess, run_to_end, tail
from herdsman.testing.servers.programs import ServerStartError, account_instead_of_root, version_of

HOST = "127.0.0.1"
STARTING = timedelta(seconds=60)
STEP = timedelta(milliseconds=50)


class PrivateServer(ABC):
    """A server of one's own, on a free loopback port, ended with the block or with the tests.

    `directory` receives the data and the log; without it, or where the server's account cannot reach it, they
    live in a temporary directory that is removed at the end. Unless `durable`, a write may be lost when the
    machine loses power, but not when the server is killed. `options` are added to the server's command line.
    """

    program: ClassVar[str]
    stop_signal: ClassVar[Signals] = SIGTERM
    refuses_root: ClassVar[bool] = False

    def __init__(
        self, directory: Path | None = None, *, durable: bool = False, options: Sequence[str] = ()
    ) -> None:
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
        self._wait_until_it_answers(self._process)

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

    def _wait_until_it_answers(self, process: ServerProcess) -> None:
        deadline = time.monotonic() + STARTING.total_seconds()
        while not self._answers():
            if process.ended() or time.monotonic() > deadline:
                self.kill()
                raise ServerStartError(f"{self.program} did not start:\n{tail(self.home.log)}")
            time.sleep(STEP.total_seconds())
