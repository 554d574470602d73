"""One running server program: how it is started, signalled and ended."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from signal import Signals

from herdsman.testing.servers import family
from herdsman.testing.servers.programs import Account, ServerStartError

GRACE = timedelta(seconds=30)
# Nothing of ours, so that a PGPORT or a MYSQL_HOME in somebody's shell changes nothing here.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


class ServerProcess:
    """A started program. It is ended by `stop` or `kill`, or by its guard when we die first."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        account: Account | None,
        stop_signal: Signals,
        scratch: Path | None,
    ) -> None:
        self._popen = _start(command, log=log, account=account)
        self._stop_signal = stop_signal
        self._guard = _post_guard(self.pid, stop_signal, scratch)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ended(self) -> bool:
        return self._popen.poll() is not None

    def pause(self) -> None:
        family.freeze(self.pid)

    def resume(self) -> None:
        family.thaw(self.pid)

    def stop(self) -> None:
        """Ask for the end and wait for it; a server that does not obey is killed."""
        if not self.ended():
            self.resume()
            self._popen.send_signal(self._stop_signal)
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(GRACE.total_seconds())
        self.kill()

    def kill(self) -> None:
        """What the out-of-memory killer or a pulled plug does: nothing is said, nothing is saved."""
        if not self.ended():
            family.kill(self.pid)
            self._popen.wait()
        self._guard.communicate(b"done")


def run_to_end(command: Sequence[str], *, log: Path, account: Account | None) -> None:
    """Run a helper program such as initdb, and raise with its words when it fails."""
    with _start(command, log=log, account=account) as helper:
        if helper.wait() != 0:
            raise ServerStartError(f"{command[0]} failed:\n{tail(log)}")


def tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _start(command: Sequence[str], *, log: Path, account: Account | None) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )


def _post_guard(pid: int, stop_signal: Signals, scratch: Path | None) -> subprocess.Popen[bytes]:
    arguments = [str(pid), str(int(stop_signal)), *([str(scratch)] if scratch is not None else [])]
    return subprocess.Popen(
        [sys.executable, "-m", "herdsman.testing.servers.guard", *arguments],
        stdin=subprocess.PIPE,
        # It may outlive the tests: whoever reads their output must not wait for it.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # The Ctrl-C that ends the tests must not end the guard before its work is done.
        start_new_session=True,
    )
