"""A3: whatever is called, by whomever, no answer is a 5xx, and every answer is one that the description promises.

Every role calls every route. `HERDSMAN_FUZZ_CALLS=20000` makes so many calls on each database, other ones each time; `-k sqlite` picks one.
"""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import pytest
from sqlalchemy import delete

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.db.schema import holds
from herdsman.fleet.leader import Leadership
from herdsman.fleet.reconcile import Reconciler
from herdsman.loops.loop_group import LoopHealth
from herdsman.ports import SystemClock
from herdsman.server.access import MATRIX, OPEN
from herdsman.server.limits import LoginThrottle
from tests.api.conftest import Build, Tokens
from tests.api.fuzzing import Fuzz, Operation
from tests.api.world import a_world
from tests.support.amounts import SOAK
from tests.support.apps import an_app
from tests.support.control_loop import a_harness
from tests.support.databases import DATABASES, Backend, MovingClock

ASKED = os.environ.get("HERDSMAN_FUZZ_CALLS")
CALLS = int(ASKED or 1)
SEED = secrets.randbits(32) if ASKED else 0
CALLERS = [None, *Role]
MANY, FEW = (60, 10) if ASKED else (4 if SOAK else 2, 1)
"""How many calls of one route in a row."""
SHUT_OUT = 3
"""Of the routes that a role may not call, it calls one of so many: `test_access` shows that it is refused at each."""
CHIEF = (Role.ADMIN, Role.WORKER)
"""One of them may call any route, and calls it often; so these two suffice on the databases that a server keeps."""
CASES = [
    (database, role)
    for database in DATABASES
    for role in CALLERS
    if SOAK or ASKED or database == "sqlite" or role in CHIEF
]


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    """Odd text breaks each database in its own way, so it is sent to all of them."""
    fresh = backend.fresh()
    yield fresh
    backend.drop(fresh)


@dataclass(frozen=True, slots=True)
class Control:
    reconciler: Reconciler
    loops: LoopHealth = field(default_factory=LoopHealth)

    @property
    def leadership(self) -> Leadership:
        return self.reconciler.leadership


@pytest.fixture
def control(services: Services, clock: MovingClock) -> Iterator[Control]:
    with a_harness(services, clock) as harness:
        yield Control(harness.replica())


@pytest.fixture
def fuzz(build: Build, control: Control) -> Fuzz:
    lenient = LoginThrottle(SystemClock(), burst=10**9, every=timedelta(milliseconds=1))
    return Fuzz(an_app(build(control=control, login_throttle=lenient)))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("backend", "role"), CASES, ids=lambda value: value or "nobody", indirect=["backend"])
def test_no_call_is_answered_with_what_the_description_does_not_promise(
    fuzz: Fuzz,
    control: Control,
    services: Services,
    tokens: Tokens,
    role: Role | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = count(SEED)
    shut_out = a_world(services, tokens, role, next(numbers))
    while fuzz.calls < CALLS / len(CALLERS):
        for operation, number in zip(fuzz.operations, numbers, strict=False):
            control.leadership.campaign()
            calls = _calls(operation, role)
            if _may(operation, role):
                services.database.transact(lambda tx: tx.execute(delete(holds)))  # an earlier call may have paused all
                world = a_world(services, tokens, role, number)
                fuzz.run(operation, world, count=calls, number=number)
            elif SOAK or ASKED or number % SHUT_OUT == 0:
                fuzz.run(operation, shut_out, count=calls, number=number)
    with capsys.disabled():
        print(f"\n{role or 'nobody'}: {fuzz.calls} calls from seed {SEED}: {dict(sorted(fuzz.answers.items()))}")


def _calls(operation: Operation, role: Role | None) -> int:
    chief = next((each for each in CHIEF if _may(operation, each)), None)
    return MANY if ASKED or (SOAK and _may(operation, role)) or role is chief else FEW


def _may(operation: Operation, role: Role | None) -> bool:
    line = (operation.method.upper(), operation.path)
    return line in OPEN or role in MATRIX[line]
