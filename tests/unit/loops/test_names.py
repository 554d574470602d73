"""What can be imported from where, and that it costs next to nothing."""

import subprocess
import sys

import pytest

import herdsman
from herdsman.worker import loops


@pytest.mark.parametrize("name", sorted(set(herdsman.__all__) - {"__version__"}))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(herdsman, name) is getattr(loops, name)
    assert name in dir(herdsman)


def test_type_checkers_are_told_the_same_names() -> None:
    assert herdsman.__file__ is not None
    with open(f"{herdsman.__file__}i", encoding="utf-8") as stub:  # noqa: PTH123
        told = stub.read()
    assert all(f'"{name}",' in told for name in herdsman.__all__)
    assert told.count('",') == len(herdsman.__all__)


@pytest.mark.parametrize("module", [herdsman, loops])
def test_other_names_are_not_there(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = module.Nothing  # type: ignore[attr-defined]


LOADED = """
import importlib, sys
before = set(sys.modules)
import herdsman
assert set(sys.modules) - before <= {"herdsman"}, set(sys.modules) - before
from herdsman import *
herdsman.LoopGroup, herdsman.MainLoop, herdsman.HealthServer
ours = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(ours - set(sys.stdlib_module_names)))
"""


def test_nothing_but_the_standard_library_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("['herdsman']\n", "")
