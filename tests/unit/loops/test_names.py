"""What can be imported from where, and that it costs next to nothing."""

import subprocess
import sys

import pytest

import herdsman
from herdsman import client, loops
from herdsman.worker import context, registry

JOBS = {"AsyncClient", "AsyncJobHandle", "Client", "JobCancelled", "JobFailed", "JobHandle"}
CLIENT = JOBS | {"AsyncLease", "Lease", "LeaseDenied", "LeaseLost"}
HANDLERS = {"Cancelled", "JobContext", "Setup", "TryAgain", "UserError"}
HOMES: dict[str, object] = {
    **dict.fromkeys(set(loops.__all__) - {"Notifier"}, loops),  # systemd alone is spoken to by it
    **dict.fromkeys(CLIENT, client),
    **dict.fromkeys(HANDLERS, context),
    "handler": registry,
}


@pytest.mark.parametrize("name", sorted(HOMES))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(herdsman, name) is getattr(HOMES[name], name)
    assert name in dir(herdsman)


def test_no_other_name_is_public() -> None:
    assert set(herdsman.__all__) == {"__version__", *HOMES}


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
for name in sys.argv[1:]:
    getattr(herdsman, name)
ours = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(ours - set(sys.stdlib_module_names)))
"""


def test_loops_and_handlers_need_nothing_but_the_standard_library() -> None:
    names = sorted(set(HOMES) - CLIENT)
    done = subprocess.run([sys.executable, "-c", LOADED, *names], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("['herdsman']\n", "")


def test_a_client_needs_nothing_of_the_control_plane() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED, *sorted(CLIENT)], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert "'httpx'" in done.stdout
    assert not [each for each in ("sqlalchemy", "fastapi", "redis") if f"'{each}'" in done.stdout]


def test_the_old_address_still_works_and_says_where_to_go() -> None:
    code = "import warnings; warnings.simplefilter('error', DeprecationWarning); import herdsman.worker.loops"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "import from herdsman.loops" in done.stderr
    code = "from herdsman.worker.loops import *; print(*dir())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert set(loops.__all__) <= set(done.stdout.split())
