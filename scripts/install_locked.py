"""Installs exactly what uv.lock pins, and the project itself, into the .venv whose Python runs this."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
INSTALLED = VENV / "requirements.txt"
EXTRAS = ("worker", "server", "postgres", "mariadb", "redis", "runpod", "s3", "sim")
NOT_LOCKED = frozenset({"herdsman", "pip", "setuptools", "uv"})


def main() -> None:
    wanted = locked_requirements()
    if not INSTALLED.exists() or INSTALLED.read_text() != wanted:
        install_exactly(wanted)
    pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))


def locked_requirements() -> str:
    """The pins and hashes of the extras above and the development tools."""
    extras = [argument for extra in EXTRAS for argument in ("--extra", extra)]
    export = [VENV / "bin" / "uv", "export", "--quiet", "--frozen", "--no-emit-project", "--no-header"]
    return output([*export, "--group", "dev", *extras])


def install_exactly(requirements: str) -> None:
    """Install what is listed and remove what is not, so that nothing works here by accident."""
    INSTALLED.unlink(missing_ok=True)
    pending = INSTALLED.with_suffix(".pending")
    pending.write_text(requirements)
    # By pip and not by uv: a machine that reaches its packages through a mirror has told pip about it.
    pip("install", "--no-deps", "--require-hashes", "--requirement", str(pending))
    if leftover := sorted(present() - names(requirements) - NOT_LOCKED):
        pip("uninstall", "--yes", *leftover)
    pending.rename(INSTALLED)


def present() -> frozenset[str]:
    return names(output([sys.executable, "-m", "pip", "list", "--format=freeze"]))


def names(requirements: str) -> frozenset[str]:
    """The names before `==`, in the spelling that makes `Typing_Extensions` and `typing-extensions` one."""
    found: list[str] = re.findall(r"^([\w.-]+)==", requirements, re.MULTILINE)
    return frozenset(re.sub(r"[-_.]+", "-", name).lower() for name in found)


def pip(command: str, *arguments: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", command, *quiet, *arguments], check=True)


def output(command: list[str | Path]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT, text=True).stdout


if __name__ == "__main__":
    main()
