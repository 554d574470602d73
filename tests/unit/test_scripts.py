"""The commands of the repository: what they promise on a machine that lacks something."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts import ensure_servers, system_packages
from scripts.install_locked import names
from scripts.lock import without_places

ROOT = Path(__file__).resolve().parents[2]


def test_the_lock_names_no_places() -> None:
    assert "://" not in (ROOT / "uv.lock").read_text()


def test_a_stripped_lock_keeps_names_and_hashes() -> None:
    locked = (
        'source = { registry = "https://mirror.example/simple" }\n'
        '{ url = "https://mirror.example/a/b/thing-1.0.tar.gz", hash = "sha256:0f" }\n'
    )
    stripped = 'source = { registry = "." }\n{ filename = "thing-1.0.tar.gz", hash = "sha256:0f" }\n'
    assert without_places(locked) == stripped
    assert without_places(stripped) == stripped


def test_spellings_of_one_package_are_one_name() -> None:
    assert names("Typing_Extensions==4.1\nzope.interface==5 ; python_version < '4'\n") == {
        "typing-extensions",
        "zope-interface",
    }


def test_a_python_that_is_too_old_is_refused_by_name(tmp_path: Path) -> None:
    a_python(tmp_path, "python3", new_enough=False)
    refused = find_python(tmp_path)
    assert refused.returncode == 1
    assert "needs Python 3.11 or newer" in refused.stderr


def test_a_versioned_python_is_used_when_python3_is_too_old(tmp_path: Path) -> None:
    a_python(tmp_path, "python3", new_enough=False)
    newer = a_python(tmp_path, "python3.12", new_enough=True)
    assert find_python(tmp_path).stdout.strip() == str(newer)


def test_a_named_python_is_the_only_candidate(tmp_path: Path) -> None:
    a_python(tmp_path, "python3", new_enough=True)
    assert find_python(tmp_path, PYTHON="python9").returncode == 1


def test_without_the_right_to_install_we_say_exactly_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_packages, "as_root", lambda: None)
    monkeypatch.setattr(system_packages.shutil, "which", Path("/usr/bin").joinpath)
    with pytest.raises(SystemExit, match=r"Redis is missing.*: sudo apt-get install redis-server$"):
        system_packages.install(["redis-server"], needed="Redis is missing")


def test_a_missing_server_is_never_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def install(packages: Sequence[str], *, needed: str) -> None:
        asked.extend([*packages, needed])

    def find_program(name: str) -> Path | None:
        return None if name == "redis-server" else Path("/usr/bin", name)

    monkeypatch.setattr(ensure_servers, "find_program", find_program)
    monkeypatch.setattr(ensure_servers, "install", install)
    with pytest.raises(SystemExit, match="still not to be found"):
        ensure_servers.main()
    assert asked == ["redis-server", "The tests need Redis (redis-server)"]


def test_plain_make_lists_the_commands() -> None:
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for command in ("run", "test", "check", "format", "lock", "mutants", "bench", "clean"):
        assert f"make {command} " in said


def a_python(directory: Path, name: str, *, new_enough: bool) -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\nexit {0 if new_enough else 1}\n")
    path.chmod(0o755)
    return path


def find_python(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", ROOT / "scripts" / "find_python"],
        env={"PATH": str(directory), **environment},
        capture_output=True,
        text=True,
    )
