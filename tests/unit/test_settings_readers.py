"""A setting does what its sentence says, or is not there; so with what an extra installs."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from herdsman.settings.kinds import DRIVERS
from tests.support.setting_readers import SOURCES, Code, reader, readers

PROJECT = SOURCES.parent.parent / "pyproject.toml"

SETTINGS = """
class Group: ...
class SizeSettings(Group):
    most: int
    least: int
    step: int
    limit: int
    def policy(self) -> SizePolicy:
        step = 2 * self.step
        return SizePolicy(ceiling=self.most, stride=step, unread=self.limit)
class Settings:
    size: SizeSettings
RELATIONS = (Relation(check=lambda s: s.size.least <= s.size.most),)
def fitting(settings: Settings) -> bool:
    return settings.size.least <= settings.size.most
"""
CORE = """
class SizePolicy:
    ceiling: int
    stride: int
    unread: int
class Other:
    unread: int
def decide(policy: SizePolicy, other: Other) -> int:
    return policy.ceiling + policy.stride + other.unread
"""


def test_every_setting_is_read_outside_the_settings() -> None:
    """The list is printed: `pytest -s`, or `python -m tests.support.setting_readers`."""
    found = readers()
    sys.stdout.write("".join(f"{name:40} {line}\n" for name, line in found.items()))
    assert [name for name, line in found.items() if line is None] == []


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("most", "src/herdsman/core/rules.py:9"),
        ("step", "src/herdsman/core/rules.py:9"),
        ("least", None),  # only compared with another setting
        ("limit", None),  # handed on, and read by nobody: a field of that name in another class is none of it
    ],
)
def test_a_setting_is_followed_to_the_code_that_reads_what_became_of_it(
    setting: str, line: str | None, tmp_path: Path
) -> None:
    root = tmp_path / "src" / "herdsman"
    for path, text in {"settings/size.py": SETTINGS, "core/rules.py": CORE}.items():
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text(text)
    assert reader(("SizeSettings", setting), Code(root).reads()) == line


def test_what_an_extra_installs_is_imported() -> None:
    """By a statement, or by its name where it is looked for or left to another package to load."""
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    # SQLAlchemy loads the driver that a URL names.
    imported = {driver for url in DRIVERS if (driver := url.partition("+")[2])}
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import():
                    imported |= {each.name.partition(".")[0] for each in node.names}
                case ast.ImportFrom(module=str(module), level=0):
                    imported.add(LOADERS.get(module, module.partition(".")[0]))
                case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _finds_a_package(node.func):
                    imported.add(name.partition(".")[0])
                case _:
                    pass
    modules = packages_distributions()
    unused = {
        f"{extra}: {package}"
        for extra, packages in extras.items()
        for package in (re.split(r"[\[<>=~! ]", each)[0] for each in packages)
        if not any(_same(package, of) and name in imported for name, dists in modules.items() for of in dists)
    }
    assert unused == set()


def _finds_a_package(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in {"import_module", "find_spec", "files"}


LOADERS = {"uvicorn.protocols.http.httptools_impl": "httptools"}
"""Modules of another package, which are imported for the sake of what they import."""


def _same(package: str, distribution: str) -> bool:
    return re.sub(r"[-_.]+", "-", package).lower() == re.sub(r"[-_.]+", "-", distribution).lower()
