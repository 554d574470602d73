"""Tokens on every database: X3 only hashes, W1 one incarnation, one exchange, and an end that holds."""

from datetime import datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from structlog.testing import capture_logs

from herdsman.access import sql as access_sql
from herdsman.access.authenticator import Authenticator, Keyring, require_same_pepper
from herdsman.access.commands import (
    Issued,
    admit_worker,
    create_bootstrap,
    create_token,
    exchange_bootstrap,
    first_admin_token,
    list_tokens,
    prune_tokens,
    renew_worker_token,
    revoke_token,
)
from herdsman.access.rules import Caller, Role
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import (
    Conflict,
    Forbidden,
    HerdsmanError,
    InvalidRequest,
    InvalidSettings,
    NotFound,
    StaleWrite,
    Unauthenticated,
)
from herdsman.fleet.commands import move_worker
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.states import Reason, WorkerStatus
from herdsman.testing.clocks import ManualClock
from tests.support.builders import a_worker, scalar
from tests.support.databases import NOON, MovingClock
from tests.support.threads import at_once

RING = Keyring(pepper=b"p" * 32)
W1 = WorkerId("w1")
PATIENCE = 20.0
FIRST, SECOND = "first-life", "second-life"


def verified(services: Services, issued: Issued | str) -> Caller:
    secret = issued if isinstance(issued, str) else issued.secret
    return Authenticator(services, ManualClock(), RING).verify(secret)


def refused(services: Services, issued: Issued) -> bool:
    try:
        verified(services, issued)
    except Unauthenticated:
        return True
    return False


def bootstrapped(services: Services) -> Caller:
    a_worker(services)
    return verified(services, create_bootstrap(services, RING, W1, DEFAULT_POOL))


def test_a_token_is_good_for_what_it_was_made_for(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    issued = create_token(services, RING, role=Role.SUBMITTER, name="ci", agent="ann", expires_in=timedelta(days=1))
    caller = verified(services, issued)
    assert (caller.role, caller.agent, caller.who) == (Role.SUBMITTER, "ann", "submitter:ci")
    assert issued.token.expires_at == NOON + timedelta(days=1)
    assert issued.secret not in repr(issued)
    clock.advance(timedelta(days=1))
    assert refused(services, issued)


def test_x3_only_a_keyed_hash_is_stored(services: Services) -> None:
    issued = create_token(services, RING, role=Role.ADMIN, name="ann")
    stored = scalar(services.database, "SELECT hash FROM api_tokens")
    assert stored == RING.hash(issued.secret)
    assert stored != Keyring(pepper=b"q" * 32).hash(issued.secret)


def test_a_revoked_token_stays_revoked(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    issued = create_token(services, RING, role=Role.VIEWER, name="wall")
    assert revoke_token(services, issued.token.id).revoked_at == NOON
    clock.advance(timedelta(hours=1))
    assert revoke_token(services, issued.token.id).revoked_at == NOON
    assert refused(services, issued)
    with pytest.raises(NotFound):
        revoke_token(services, "0" * 16)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"role": Role.WORKER}, "role"),
        ({"role": Role.BOOTSTRAP}, "role"),
        ({"name": ""}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"agent": "ann"}, "agent"),
        ({"role": Role.SUBMITTER, "agent": "a b"}, "agent"),
        ({"expires_in": timedelta(0)}, "expires_in"),
        ({"expires_in": timedelta(days=4000)}, "expires_in"),
    ],
)
def test_a_token_that_cannot_be_is_refused(services: Services, asked: dict[str, object], said: str) -> None:
    wanted: dict[str, object] = {"role": Role.VIEWER, "name": "wall", **asked}
    with pytest.raises(InvalidRequest, match=said):
        create_token(services, RING, **wanted)  # type: ignore[arg-type]  # it is wrong on purpose
    assert list_tokens(services) == []


def test_tokens_are_listed_by_pages(services: Services) -> None:
    made = {create_token(services, RING, role=Role.VIEWER, name=f"v{n}").token.id for n in range(5)}
    require_same_pepper(services.database, RING)
    first = list_tokens(services, limit=3)
    rest = list_tokens(services, after=first[-1].id, limit=3)
    assert [each.id for each in first + rest] == sorted(made)
    for wrong in (0, 201):
        with pytest.raises(InvalidRequest, match="limit"):
            list_tokens(services, limit=wrong)


def test_a_bootstrap_token_becomes_one_worker_once(services: Services) -> None:
    caller = bootstrapped(services)
    worker = verified(services, exchange_bootstrap(services, RING, caller, W1, FIRST))
    assert (worker.role, worker.worker_id, worker.incarnation) == (Role.WORKER, W1, FIRST)
    with capture_logs() as logs, pytest.raises(Forbidden, match="used before"):
        exchange_bootstrap(services, RING, caller, W1, SECOND)
    assert [(each["event"], each["log_level"]) for each in logs] == [("token.bootstrap_used_again", "error")]


def test_of_many_exchanges_at_once_one_wins(services: Services) -> None:
    caller = bootstrapped(services)

    def exchange(number: int) -> Issued | HerdsmanError:
        try:
            return exchange_bootstrap(services, RING, caller, W1, f"life-number-{number}")
        except Forbidden as error:
            return error

    won = [each for each in at_once(6, exchange) if isinstance(each, Issued)]
    assert len(won) == 1
    assert not refused(services, won[0])


def test_a_lost_answer_may_be_asked_for_again_for_a_minute(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    caller = bootstrapped(services)
    lost = exchange_bootstrap(services, RING, caller, W1, FIRST)
    clock.advance(timedelta(seconds=60))
    again = exchange_bootstrap(services, RING, caller, W1, FIRST)
    assert lost.secret != again.secret
    # The first answer may only have been late, so it is good as well.
    assert not refused(services, lost)
    assert not refused(services, again)
    clock.advance(timedelta(seconds=1))
    with pytest.raises(Forbidden):
        exchange_bootstrap(services, RING, caller, W1, FIRST)


def test_a_bootstrap_token_ends_after_its_time_and_with_its_worker(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    a_worker(services)
    issued = create_bootstrap(services, RING, W1, DEFAULT_POOL)
    clock.advance(RING.bootstrap_life)
    assert refused(services, issued)
    fresh = create_bootstrap(services, RING, W1, DEFAULT_POOL)
    caller = verified(services, fresh)
    move_worker(services, W1, WorkerStatus.ERROR, Reason.LOST)
    assert refused(services, fresh)
    with pytest.raises(StaleWrite):
        exchange_bootstrap(services, RING, caller, W1, FIRST)


def test_a_revoked_bootstrap_token_makes_no_worker(services: Services) -> None:
    caller = bootstrapped(services)
    revoke_token(services, caller.token_id)
    with pytest.raises(Forbidden):
        exchange_bootstrap(services, RING, caller, W1, FIRST)


def test_w1_a_newer_incarnation_ends_the_older_one(services: Services) -> None:
    old = exchange_bootstrap(services, RING, bootstrapped(services), W1, FIRST)
    remembered = verified(services, old)
    new = admit_worker(services, RING, remembered, W1, SECOND)
    assert refused(services, old)
    assert not refused(services, new)
    # The older one wakes up while some replica still remembers it as good.
    with pytest.raises(Unauthenticated):
        admit_worker(services, RING, remembered, W1, FIRST)
    assert not refused(services, new)


def test_an_enroller_adds_workers_and_becomes_none_that_is_there(services: Services) -> None:
    enroller = Caller(token_id="test", role=Role.ENROLLER)
    worker = a_worker(services)
    with pytest.raises(Conflict, match=r"there is a worker .* already, and an enroller adds new ones"):
        admit_worker(services, RING, enroller, worker, FIRST)
    first = admit_worker(services, RING, enroller, worker, FIRST, new=True)
    # The answer was lost: the same incarnation asks again, and any other is a stranger.
    assert not refused(services, admit_worker(services, RING, enroller, worker, FIRST))
    with pytest.raises(Conflict):
        admit_worker(services, RING, enroller, worker, SECOND)
    assert not refused(services, first)


def test_of_two_incarnations_at_once_one_is_left(services: Services) -> None:
    worker = a_worker(services)
    admin = Caller(token_id="test", role=Role.ADMIN)
    made = at_once(4, lambda number: admit_worker(services, RING, admin, worker, f"life-number-{number}"))
    assert sum(not refused(services, each) for each in made) == 1


def test_an_incarnation_waits_for_the_one_before_it(services: Services) -> None:
    """Otherwise neither would see the other's token, and both would live."""
    worker = a_worker(services)
    admin = Caller(token_id="test", role=Role.ADMIN)
    second = Thread(target=admit_worker, args=(services, RING, admin, worker, SECOND))

    def first(tx: Tx) -> bool:
        access_sql.lock_worker(tx, worker)
        second.start()
        second.join(1)
        return second.is_alive()

    assert services.database.transact(first)
    second.join(PATIENCE)
    assert len(list_tokens(services)) == 1


def test_a_worker_is_admitted_only_under_its_own_name(services: Services) -> None:
    caller = verified(services, exchange_bootstrap(services, RING, bootstrapped(services), W1, FIRST))
    a_worker(services, "w2")
    with pytest.raises(Forbidden):
        admit_worker(services, RING, caller, WorkerId("w2"), SECOND)
    viewer = verified(services, create_token(services, RING, role=Role.VIEWER, name="wall"))
    with pytest.raises(Forbidden):
        admit_worker(services, RING, viewer, W1, SECOND)
    with pytest.raises(NotFound):
        admit_worker(services, RING, Caller(token_id="x", role=Role.ADMIN), WorkerId("w3"), SECOND)


def test_x4_a_worker_s_token_is_renewed_in_its_second_half(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    old = exchange_bootstrap(services, RING, bootstrapped(services), W1, FIRST)
    clock.advance(RING.worker_life / 2)
    assert renew_worker_token(services, RING, verified(services, old)) is None
    clock.advance(timedelta(seconds=1))
    new = renew_worker_token(services, RING, verified(services, old))
    assert new is not None
    assert not refused(services, old)
    assert not verified(services, new).ageing
    clock.advance(RING.worker_life / 2)
    assert refused(services, old)
    assert not refused(services, new)


@pytest.mark.parametrize("end", [WorkerStatus.ERROR, WorkerStatus.TERMINATED])
def test_a_token_dies_with_its_worker(services: Services, end: WorkerStatus) -> None:
    issued = exchange_bootstrap(services, RING, bootstrapped(services), W1, FIRST)
    move_worker(services, W1, WorkerStatus.TERMINATING, Reason.DRAINED)
    assert not refused(services, issued)
    if end is WorkerStatus.ERROR:
        other = admit_worker(services, RING, Caller(token_id="x", role=Role.ADMIN), a_worker(services, "w2"), FIRST)
        move_worker(services, WorkerId("w2"), WorkerStatus.ERROR, Reason.LOST)
        assert refused(services, other)
    else:
        move_worker(services, W1, WorkerStatus.TERMINATED, Reason.STOPPED)
        said = r"worker 'w1' is terminated \(stopped\), and its token with it: start a new worker"
        with pytest.raises(Unauthenticated, match=said):
            verified(services, issued)


def test_old_tokens_are_forgotten_and_others_kept(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    require_same_pepper(services.database, RING)
    brief = timedelta(hours=1)
    create_token(services, RING, role=Role.VIEWER, name="brief", expires_in=brief)
    revoked = create_token(services, RING, role=Role.VIEWER, name="revoked")
    kept = create_token(services, RING, role=Role.VIEWER, name="kept")
    revoke_token(services, revoked.token.id)
    assert prune_tokens(services) == 0
    clock.advance(timedelta(days=8))
    assert prune_tokens(services) == 2
    assert [each.id for each in list_tokens(services)] == [kept.token.id]
    require_same_pepper(services.database, RING)


def test_a_replica_with_another_pepper_does_not_start(services: Services) -> None:
    require_same_pepper(services.database, RING)
    require_same_pepper(services.database, RING)
    with pytest.raises(InvalidSettings, match="TOKEN_PEPPER"):
        require_same_pepper(services.database, Keyring(pepper=b"q" * 32))


def test_the_first_admin_is_made_once(services: Services, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "admin-token"
    secret = first_admin_token(services, RING, file)
    assert secret is not None
    assert file.read_text() == f"{secret}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert verified(services, secret).role is Role.ADMIN
    assert first_admin_token(services, RING, file) is None
    revoke_token(services, verified(services, secret).token_id)
    assert first_admin_token(services, RING, file) not in (None, secret)


def test_it_is_noted_when_a_token_was_used_last(services: Services, clock: MovingClock) -> None:
    """At most once a minute: a token in use must not be a row that everybody writes."""
    clock.stop(at=NOON)
    admin = create_token(services, RING, role=Role.ADMIN, name="ann")
    assert used(services, admin) is None
    verified(services, admin)
    assert used(services, admin) == NOON
    clock.advance(timedelta(seconds=50))
    verified(services, admin)
    assert used(services, admin) == NOON
    clock.advance(timedelta(seconds=11))
    verified(services, admin)
    assert used(services, admin) == NOON + timedelta(seconds=61)


def test_a_bootstrap_token_that_was_only_shown_is_not_used(services: Services) -> None:
    a_worker(services, "w1")
    issued = create_bootstrap(services, RING, W1, DEFAULT_POOL)
    verified(services, issued)
    assert used(services, issued) is None
    services.database.transact(lambda tx: access_sql.note_use(tx, issued.token.id, timedelta(0)))
    assert used(services, issued) is None


def used(services: Services, issued: Issued) -> datetime | None:
    return services.database.read(lambda tx: access_sql.get_token(tx, issued.token.id)).used_at
