"""A private MariaDB."""

import os
from pathlib import Path
from typing import ClassVar

import pymysql
from pymysql.cursors import Cursor

from tests.support.servers.server import HOST, PrivateServer, program

# Run at every start, one statement to a line.
HERDSMAN = """\
CREATE USER IF NOT EXISTS herdsman@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO herdsman@'127.0.0.1' WITH GRANT OPTION;
"""


class MariadbServer(PrivateServer):
    """Grants are checked as in production; `herdsman` has them all and needs no password."""

    program: ClassVar[str] = "mariadbd"

    def url(self, database: str) -> str:
        # Without TLS: the driver would read every certificate of the system anew for each connection.
        return f"mysql+pymysql://herdsman@{HOST}:{self.port}/{database}?charset=utf8mb4&ssl_disabled=true"

    def create_database(self, name: str) -> None:
        self._execute(f"CREATE DATABASE {_quoted(name)}")

    def drop_database(self, name: str) -> None:
        """Also when it is not there."""
        self._execute(f"DROP DATABASE IF EXISTS {_quoted(name)}")

    def _execute(self, statement: str) -> None:
        with self._connect() as connection:
            connection.cursor().execute(statement)

    def _answers(self) -> bool:
        try:
            with self._connect() as connection, connection.cursor() as cursor:
                cursor.execute("SELECT @@datadir")
                return cursor.fetchone() == (f"{self.home.data}/",)
        except pymysql.OperationalError:
            return False

    def _connect(self) -> "pymysql.Connection[Cursor]":
        return pymysql.connect(host=HOST, port=self.port, user="herdsman", connect_timeout=5)

    def _prepare(self) -> None:
        self._users.write_text(HERDSMAN)
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        self._run([program("mariadb-install-db"), "--no-defaults", *options, *self._place()])

    def _command(self) -> list[str]:
        settings = {
            "bind-address": HOST,
            "port": self.port,
            # Relative to the data directory: a full path has a length limit that temporary directories run into.
            "socket": "server.sock",
            "init-file": self._users,
            "max-connections": 200,
            "character-set-server": "utf8mb4",
            "innodb-buffer-pool-size": "256M",
            # A table is made, emptied and dropped ten times as fast when it has no file of its own.
            "loose-innodb-file-per-table": 0,
            # 2 hands every commit to the kernel, which outlives us; 0 would lose a second of them when killed.
            "innodb-flush-log-at-trx-commit": 1 if self.durable else 2,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        flags = ["--skip-log-bin", "--skip-name-resolve"]
        return [program("mariadbd"), "--no-defaults", *self._place(), *options, *flags]

    @property
    def _users(self) -> Path:
        return self.home.path / "users.sql"

    def _place(self) -> list[str]:
        # A server that starts clears its directory for temporary tables, so two must not share one.
        place = [f"--datadir={self.home.data}", f"--tmpdir={self.home.path}"]
        # Run by root, MariaDB wants to be told that this is meant.
        return [*place, *(["--user=root"] if os.geteuid() == 0 else [])]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
