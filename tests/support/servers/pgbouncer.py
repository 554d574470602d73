"""A private PgBouncer in front of a private PostgreSQL."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from psycopg import OperationalError, connect

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.server import HOST, PrivateServer, program


class PgBouncerServer(PrivateServer):
    """In transaction mode: each transaction may get another session, which other clients had before."""

    program: ClassVar[str] = "pgbouncer"
    refuses_root: ClassVar[bool] = True

    def __init__(self, behind: PostgresServer, *, sessions: int = 2, options: Sequence[str] = ()) -> None:
        super().__init__(options=options)
        self._behind, self._sessions = behind, sessions

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://herdsman@{HOST}:{self.port}/{database}"

    def _answers(self) -> bool:
        try:
            with connect(f"postgresql://herdsman@{HOST}:{self.port}/pgbouncer", autocommit=True) as connection:
                settings = connection.execute("SHOW CONFIG").fetchall()
                return any(row[:2] == ("auth_file", str(self.home.data / "users")) for row in settings)
        except OperationalError:
            return False

    def _prepare(self) -> None:
        (self.home.data / "users").write_text('"herdsman" ""\n')
        settings = {
            "listen_addr": HOST,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": self.home.data / "users",
            "admin_users": "herdsman",
            "pool_mode": "transaction",
            "default_pool_size": self._sessions,
            "server_round_robin": 1,
            # Sent by every client at login, and no business of the pooler's.
            "ignore_startup_parameters": "extra_float_digits",
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        databases = f"[databases]\n* = host={HOST} port={self._behind.port}\n"
        self._config.write_text(databases + "[pgbouncer]\n" + "\n".join(lines) + "\n")

    @property
    def _config(self) -> Path:
        return self.home.data / "pgbouncer.ini"

    def _command(self) -> list[str]:
        return [program("pgbouncer"), str(self._config)]
