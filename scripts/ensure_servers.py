"""Makes sure that the servers and the browser that the tests start are installed. No test is skipped for want of one."""

import sys
from dataclasses import dataclass

from scripts.system_packages import install
from tests.support.servers.server import find_program


@dataclass(frozen=True)
class Needed:
    name: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]

    def missing(self) -> bool:
        return any(find_program(program) is None for program in self.programs)


NEEDED = (
    Needed("PostgreSQL", programs=("initdb", "postgres"), packages=("postgresql",)),
    Needed("PgBouncer", programs=("pgbouncer",), packages=("pgbouncer",)),
    # The core packages bring the programs without a system service.
    Needed(
        "MariaDB",
        programs=("mariadbd", "mariadb-install-db", "my_print_defaults"),
        packages=("mariadb-server-core", "mariadb-client-core"),
    ),
    Needed("Redis", programs=("redis-server",), packages=("redis-server",)),
    Needed("Prometheus", programs=("prometheus", "promtool"), packages=("prometheus",)),
    Needed("bubblewrap", programs=("bwrap",), packages=("bubblewrap",)),
    Needed("Chromium", programs=("chromium",), packages=("chromium",)),
)


def main() -> None:
    if missing := [each for each in NEEDED if each.missing()]:
        packages = [package for each in missing for package in each.packages]
        install(packages, needed=f"The tests need {listed(missing)}")
    if missing := [each for each in NEEDED if each.missing()]:
        sys.exit(f"The tests need {listed(missing)}, and it is still not to be found after installing it.")


def listed(missing: list[Needed]) -> str:
    return ", ".join(f"{each.name} ({', '.join(each.programs)})" for each in missing)


if __name__ == "__main__":
    main()
