"""Makes sure that the database servers the tests start are installed. Tests are never skipped for want of one."""

import sys
from dataclasses import dataclass

from herdsman.testing.servers.programs import find_program
from scripts.system_packages import install


@dataclass(frozen=True)
class Needed:
    name: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]

    def missing(self) -> bool:
        return any(find_program(program) is None for program in self.programs)


SERVERS = (
    Needed("PostgreSQL", programs=("initdb", "postgres"), packages=("postgresql",)),
    # The core packages bring the programs without a system service.
    Needed(
        "MariaDB",
        programs=("mariadbd", "mariadb-install-db", "my_print_defaults"),
        packages=("mariadb-server-core", "mariadb-client-core"),
    ),
    Needed("Redis", programs=("redis-server",), packages=("redis-server",)),
)


def main() -> None:
    if missing := [server for server in SERVERS if server.missing()]:
        packages = [package for server in missing for package in server.packages]
        install(packages, needed=f"The tests need {listed(missing)}")
    if missing := [server for server in SERVERS if server.missing()]:
        sys.exit(f"The tests need {listed(missing)}, and it is still not to be found after installing it.")


def listed(servers: list[Needed]) -> str:
    return ", ".join(f"{server.name} ({', '.join(server.programs)})" for server in servers)


if __name__ == "__main__":
    main()
