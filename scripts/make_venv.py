"""Makes .venv with nothing but pip and uv in it, on a machine that has only Python."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from scripts.system_packages import install

VENV = Path(__file__).resolve().parent.parent / ".venv"
UV = "uv==0.13.7"


def main() -> None:
    if not usable():
        if importlib.util.find_spec("ensurepip") is None:
            # Debian ships Python without it, in a package that is named after the version.
            package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
            install([package], needed=f"{sys.executable} cannot make a virtual environment")
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
    pip = [VENV / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, UV], check=True)


def usable() -> bool:
    """A .venv that was half made, or made by a Python that is gone or too old, is made again."""
    probe = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        done = subprocess.run([VENV / "bin" / "python", "-c", probe], check=False, capture_output=True)
    except FileNotFoundError:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    main()
