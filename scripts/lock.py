"""Locks the dependencies. The lock names packages and hashes, not places, so it installs through any mirror."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "uv.lock"
# Where the packages come from, as uv writes it for a directory: uv then leaves the place to whoever installs.
NOWHERE = "."


def main() -> None:
    # uv keeps the pins of a lock without places, and writes places only when it has to resolve again.
    subprocess.run([ROOT / ".venv" / "bin" / "uv", "lock"], check=True, cwd=ROOT)
    LOCK.write_text(without_places(LOCK.read_text()))


def without_places(lock: str) -> str:
    named = re.sub(r'\burl = "[^"]*/([^"/]+)"', r'filename = "\1"', lock)
    return re.sub(r'\bregistry = "[^"]*"', f'registry = "{NOWHERE}"', named)


if __name__ == "__main__":
    main()
