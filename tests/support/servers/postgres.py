"""A private PostgreSQL."""

from signal import SIGINT, Signals
from typing import ClassVar, LiteralString

from psycopg import OperationalError, connect
from psycopg.sql import SQL, Identifier

from tests.support.servers.server import HOST, PrivateServer, program


class PostgresServer(PrivateServer):
    """Anyone on this machine may log in as `herdsman`: it holds test data only."""

    program: ClassVar[str] = "postgres"
    # The polite signal waits until every client has left; this one sends them away.
    stop_signal: ClassVar[Signals] = SIGINT
    refuses_root: ClassVar[bool] = True

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://herdsman@{HOST}:{self.port}/{database}"

    def create_database(self, name: str) -> None:
        self._execute("CREATE DATABASE {}", name)

    def drop_database(self, name: str) -> None:
        """Also when somebody is still connected to it, or when it is not there."""
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _execute(self, statement: LiteralString, database: str) -> None:
        with connect(self._login(), autocommit=True) as connection:
            connection.execute(SQL(statement).format(Identifier(database)))

    def _answers(self) -> bool:
        try:
            with connect(self._login(), connect_timeout=5) as connection:
                return connection.execute("SHOW data_directory").fetchone() == (str(self.home.data),)
        except OperationalError:
            return False

    def _login(self) -> str:
        return f"postgresql://herdsman@{HOST}:{self.port}/postgres"

    def _prepare(self) -> None:
        options = ["--username=herdsman", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        self._run([program("initdb"), *options, f"--pgdata={self.home.data}"])

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": HOST,
            "port": self.port,
            # No socket file: its path has a length limit that temporary directories run into.
            "unix_socket_directories": "",
            "max_connections": 200,
            "shared_buffers": "128MB",
            "fsync": "on" if self.durable else "off",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [program("postgres"), "-D", str(self.home.data), *options]
