"""A command is loaded when it is used, and says what it needs where that is not installed."""

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import typer
from typer.testing import CliRunner

from herdsman.cli import main
from herdsman.cli.main import Entry, group
from herdsman.errors import InvalidSettings

HEAVY = ("alembic", "fastapi", "psycopg", "pymysql", "sqlalchemy", "uvicorn")


OF_OTHERS = (
    "asyncio",
    "httpx._main",
    "rich.live",
    "tomllib",
    *(f"herdsman.{room}.wire" for room in ("explain", "fleet", "leases", "limits", "pools")),
    *("herdsman.fleet.model", "herdsman.jobs.model", "herdsman.jobs.protocol", "herdsman.jobs.worker_wire"),
    *("herdsman.leases.rules", "herdsman.settings.environment"),
)
"""What takes long to load, and a list of jobs has no use for."""


class NoJobs(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"jobs": [], "next": null}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def an_app(**entries: Entry) -> typer.Typer:
    app = typer.Typer(cls=group(entries), no_args_is_help=True)

    @app.callback()
    def options() -> None:  # pyright: ignore[reportUnusedFunction]
        """A command with commands."""

    return app


SPEAKING = (
    "main",
    "worker",
    "jobs",
    "run",
    "explain",
    "holds",
    "leases",
    "policy",
    "fleet",
    "top.command",
)


def test_neither_a_worker_nor_who_asks_a_server_loads_the_control_plane() -> None:
    """A GPU machine installs `herdsman[worker]` and nothing more."""
    modules = ", ".join(f"herdsman.cli.{each}" for each in SPEAKING)
    program = f"import sys, {modules}; print(sorted(set(sys.modules) & {set(HEAVY)}))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_command_at_the_database_loads_neither_a_web_framework_nor_what_migrates() -> None:
    """A person waits for it each time."""
    unused = {"alembic", "fastapi", "uvicorn"}
    program = f"import sys, herdsman.cli.services, herdsman.server.wiring; print(set(sys.modules) & {unused})"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


def test_a_command_whose_packages_are_missing_says_so_and_stays_in_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(_name: str) -> object:
        raise ModuleNotFoundError("No module named 'sqlalchemy'", name="sqlalchemy")

    monkeypatch.setattr(main, "import_module", gone)
    app = an_app(up=Entry("up:up", "Start it."), old=Entry("up:up", "Start it.", hidden=True))
    listed = CliRunner().invoke(app, ["--help"]).output
    assert "Start it." in listed
    assert "old" not in listed
    used = CliRunner().invoke(app, ["up", "--fake-gpus", "2"])
    assert isinstance(used.exception, InvalidSettings)
    assert "herdsman up needs the package sqlalchemy" in str(used.exception)


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_server_without_its_web_framework_says_what_to_install(command: str) -> None:
    program = f"import sys; sys.modules['fastapi'] = None; sys.argv = ['herdsman', '{command}']"
    program += "; from herdsman.cli.main import main; main()"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.returncode != 0
    assert said.stderr.startswith(f"herdsman: herdsman {command} needs the package fastapi, which is not installed")


def test_listing_the_commands_loads_none_of_them() -> None:
    program = "import sys; sys.argv = ['herdsman', '--help']; from herdsman.cli.main import main\n"
    program += "try: main()\nexcept SystemExit: pass\n"
    program += "print([name for name in sys.modules if name.startswith('herdsman.')])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = said.stdout.splitlines()[-1]
    assert loaded.count("herdsman.cli.") == 3, f"main, errors and output: {loaded}"
    assert "herdsman.settings" not in loaded


def test_a_list_of_jobs_loads_nothing_of_other_subjects_and_no_certificates(tmp_path: Path) -> None:
    """A person waits for it each time: it may take 0.45 s of CPU (`bench.startup`)."""
    program = "import ssl, sys; sys.argv = ['herdsman', 'jobs']; ssl.create_default_context = None\n"
    program += "from herdsman.cli.main import main\ntry: main()\n"
    program += "except SystemExit as ended: assert not ended.code\n"
    program += f"print([name for name in {OF_OTHERS} if sys.modules.get(name)])"
    with HTTPServer(("127.0.0.1", 0), NoJobs) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        env = {
            "PATH": os.environ["PATH"],
            "API_URL": f"http://127.0.0.1:{server.server_port}",
            "API_TOKEN": "x",
            "LOCAL_STATE_DIR": str(tmp_path),
        }
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=env)
        server.shutdown()
    assert said.stdout.splitlines() == ["no jobs; submit one with: herdsman submit demo", "[]"], said.stderr


def test_a_handler_process_loads_nothing_of_the_fleet() -> None:
    """It is paid for at each cold start."""
    unused = {"herdsman.fleet.model", "httpx", "pydantic", "rich", "typer"}
    program = f"import sys, herdsman.worker.handler_main; print(set(sys.modules) & {unused})"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


def test_a_mistake_of_ours_is_not_taken_for_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_name: str) -> object:
        raise ModuleNotFoundError("No module named 'herdsman.nope'", name="herdsman.nope")

    monkeypatch.setattr(main, "import_module", gone)
    with pytest.raises(ModuleNotFoundError):
        CliRunner().invoke(an_app(up=Entry("up:up")), ["up"], catch_exceptions=False)
