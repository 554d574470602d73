"""Leases that somebody asked for: never more than there is, never after their time, never without a word."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from herdsman.context import Services
from herdsman.errors import Conflict, Gone, InvalidRequest, NotFound
from herdsman.jobs.sweep import Sweeper, end_overdue_leases
from herdsman.leases import sql as leases_sql
from herdsman.leases.commands import (
    grant_lease,
    keep_lease,
    list_leases,
    release_lease,
    revoke_lease,
)
from herdsman.leases.rules import Lease, LeaseMode, LeasePolicy
from herdsman.limits.control_policy import AgentLimits, ControlPolicy
from herdsman.ports import SystemClock
from herdsman.states import LeaseStatus
from tests.support.builders import scalar
from tests.support.databases import MovingClock, opened
from tests.support.gpus import TOTAL, a_lease, a_node, ask, asked, new_token, refused

SECOND = timedelta(seconds=1)


def audited(services: Services, lease: Lease) -> list[str]:
    query = "SELECT {} FROM orchestrator_audit WHERE object_kind = 'lease' AND object_id = :token AND seq = {}"
    count = int(scalar(services.database, query.format("COUNT(*)", "seq"), token=lease.token))
    return [
        scalar(services.database, query.format("event_type", seq), token=lease.token) for seq in range(1, count + 1)
    ]


def test_a_lease_names_its_gpu_its_end_and_its_number(services: Services) -> None:
    a_node(services, gpus=1)
    lease = a_lease(services, 8000, ttl_s=60)
    assert (lease.node_id, lease.gpu_index, lease.gpu_uuid) == ("n1", 0, "GPU-n1-0")
    assert lease.expires_at - lease.created_at == 60 * SECOND
    assert (lease.seq, lease.mode, lease.memory_mb) == (1, "gpu", 8000)


def test_l1_no_more_is_leased_than_there_is(services: Services) -> None:
    a_node(services)
    for _ in range(3):
        a_lease(services, 8000)
    assert refused(services, 1) == "leased"


def test_l1_clients_that_ask_at_once_never_get_more_than_there_is(services: Services) -> None:
    a_node(services, gpus=2)
    with ThreadPoolExecutor(8) as many:
        got = list(many.map(partial(ask, services), [8000] * 24))
    granted = [each for each in got if isinstance(each, Lease)]
    assert len(granted) == 6
    for uuid in ("GPU-n1-0", "GPU-n1-1"):
        assert sorted(each.seq for each in granted if each.gpu_uuid == uuid) == [1, 2, 3]


def test_l1_exclusive_is_exclusive(services: Services) -> None:
    a_node(services, gpus=1)
    shared = a_lease(services, 100)
    assert refused(services, 100, exclusive=True) == "shared"
    release_lease(services, shared.token, who="test")
    a_node(services)
    a_lease(services, 100, exclusive=True)
    assert refused(services, 100) == "held_alone"


def test_the_tightest_gpu_that_fits_is_taken(services: Services) -> None:
    a_node(services, gpus=2)
    first = a_lease(services, 20_000)
    assert a_lease(services, 4000).gpu_uuid == first.gpu_uuid
    assert a_lease(services, 4000).gpu_uuid != first.gpu_uuid


def test_a_wanted_node_and_index_are_kept_to(services: Services) -> None:
    a_node(services, "n1", gpus=2)
    a_node(services, "n2", gpus=2)
    assert a_lease(services, node="n2", gpu_index=1).gpu_uuid == "GPU-n2-1"
    assert refused(services, node="n3") == "no_gpu"


def test_memory_that_outsiders_use_is_not_leased(services: Services) -> None:
    a_node(services, used_mb=20_000)
    assert refused(services, 8000) == "outsiders"
    assert a_lease(services, 4000).memory_mb == 4000
    assert refused(services, 100, exclusive=True) == "shared"


def test_memory_that_fills_up_under_a_lease_is_not_leased(services: Services) -> None:
    """A lease says what its holder may use; what is in use now counts as well."""
    a_node(services)
    a_lease(services, 4000)
    a_node(services, used_mb=23_000)
    assert refused(services, 6000) == "outsiders"
    assert refused(services, 4000) == "leased"


def test_more_than_any_gpu_has_is_refused_at_once(services: Services) -> None:
    a_node(services)
    assert refused(services, TOTAL + 1) == "too_large"


def test_a_refusal_has_a_sentence_with_numbers_and_a_time(services: Services) -> None:
    a_node(services)
    a_lease(services, 20_000)
    got = ask(services, 8000)
    assert not isinstance(got, Lease)
    assert "8000" in got.detail and "20000" in got.detail.replace(",", "")
    assert got.retry_after > timedelta(0)


def test_a_lease_without_a_gpu_is_given_only_to_who_allows_it(services: Services) -> None:
    assert refused(services) == "no_gpu"
    lease = a_lease(services, allow_cpu=True)
    assert (lease.mode, lease.gpu_index, lease.memory_mb) == ("cpu", None, 0)


def test_a_heartbeat_moves_the_end_of_a_lease(services: Services, clock: MovingClock) -> None:
    a_node(services)
    lease = a_lease(services, ttl_s=60)
    clock.advance(50 * SECOND)
    kept = keep_lease(services, lease.token)
    assert kept.expires_at - lease.expires_at >= 50 * SECOND
    clock.advance(50 * SECOND)
    assert keep_lease(services, lease.token).expires_at > kept.expires_at


def test_l2_a_late_heartbeat_is_gone_and_revives_nothing(services: Services, clock: MovingClock) -> None:
    a_node(services)
    lease = a_lease(services, ttl_s=60)
    clock.advance(61 * SECOND)
    for _ in range(2):
        with pytest.raises(Gone):
            keep_lease(services, lease.token)
    end_overdue_leases(services)
    with pytest.raises(Gone):
        keep_lease(services, lease.token)


def test_l2_a_lease_that_was_given_on_is_lost_to_its_holder(services: Services, clock: MovingClock) -> None:
    a_node(services)
    lease = a_lease(services, 20_000, ttl_s=30)
    clock.advance(31 * SECOND)
    assert refused(services, 20_000) == "unproven"
    a_node(services)
    later = a_lease(services, 20_000)
    assert later.seq == lease.seq + 1
    with pytest.raises(Gone):
        keep_lease(services, lease.token)
    assert audited(services, lease) == ["lease.active", "lease.expired"]


def test_an_expired_lease_is_marked_and_audited(services: Services, clock: MovingClock) -> None:
    a_node(services)
    lease = a_lease(services, ttl_s=5)
    clock.advance(6 * SECOND)
    swept = Sweeper(services, SystemClock(), SECOND).pass_once()
    assert swept.leases_ended == 1
    assert audited(services, lease) == ["lease.active", "lease.expired"]
    (found,) = list_leases(services, agent=None, ended=True, after=None, limit=10).leases
    assert (found.status, found.reason, found.ended_at) == (
        LeaseStatus.EXPIRED,
        "lease_expired",
        lease.expires_at,
    )


def test_a_release_is_audited_and_may_be_said_twice(services: Services) -> None:
    a_node(services)
    lease = a_lease(services)
    for _ in range(2):
        assert release_lease(services, lease.token, who="ann").status is LeaseStatus.RELEASED
    assert audited(services, lease) == ["lease.active", "lease.released"]
    with pytest.raises(Gone):
        keep_lease(services, lease.token)


def test_release_works_from_another_replica(services: Services, url: str, clock: MovingClock) -> None:
    a_node(services)
    lease = a_lease(services)
    with opened(url, clock) as other:
        elsewhere = replace(services, database=other)
        keep_lease(elsewhere, lease.token)
        assert release_lease(elsewhere, lease.token, who="ann").status is LeaseStatus.RELEASED
    with pytest.raises(Gone):
        keep_lease(services, lease.token)


def test_a_lease_is_revoked_by_a_person(services: Services) -> None:
    a_node(services)
    lease = a_lease(services)
    assert revoke_lease(services, lease.token, who="operator:eve").status is LeaseStatus.REVOKED
    assert audited(services, lease) == ["lease.active", "lease.revoked"]
    with pytest.raises(Gone):
        keep_lease(services, lease.token)


def test_x2_the_leases_of_others_do_not_exist(services: Services) -> None:
    a_node(services)
    lease = a_lease(services, agent="ann")
    with pytest.raises(NotFound):
        keep_lease(services, lease.token, only_agent="bob")
    with pytest.raises(NotFound):
        release_lease(services, lease.token, who="bob", only_agent="bob")
    assert keep_lease(services, lease.token, only_agent="ann")


def test_an_unknown_lease_is_not_found(services: Services) -> None:
    with pytest.raises(NotFound):
        keep_lease(services, "no-such-token-here")
    for end in (release_lease, revoke_lease):
        with pytest.raises(NotFound):
            end(services, "no-such-token-here", who="x")


def test_the_same_words_with_the_same_token_bring_the_same_lease(services: Services) -> None:
    a_node(services)
    first = a_lease(services, token="0123456789abcdef")
    again = a_lease(services, token="0123456789abcdef")
    assert (first.token, first.seq) == (again.token, again.seq)
    with pytest.raises(Conflict):
        ask(services, token="0123456789abcdef", agent="bob")
    release_lease(services, first.token, who="ann")
    with pytest.raises(Gone):
        ask(services, token="0123456789abcdef")


@pytest.mark.parametrize("memory_mb", [0, -1, 10**9, 10**400])
def test_odd_amounts_of_memory_are_refused_by_name_value_and_rule(services: Services, memory_mb: int) -> None:
    with pytest.raises(InvalidRequest, match=r"min_memory_mb is .*: it must be from 1 to"):
        ask(services, memory_mb)


def test_l3_a_gpu_is_given_again_only_after_somebody_has_looked(services: Services) -> None:
    a_node(services)
    release_lease(services, a_lease(services).token, who="ann")
    assert refused(services) == "unproven"
    a_node(services)
    assert a_lease(services).seq == 2


def test_off_means_that_nobody_is_given_a_lease(services: Services) -> None:
    off = replace(services, leasing=LeasePolicy(mode=LeaseMode.OFF))
    with pytest.raises(Conflict, match="LEASE_MODE"):
        ask(off)


def test_a_shadow_refuses_nobody_and_says_what_it_would_have(services: Services) -> None:
    shadow = replace(services, leasing=LeasePolicy(mode=LeaseMode.SHADOW))
    assert a_lease(shadow).overruled == "no_gpu"
    a_node(shadow)
    assert a_lease(shadow, 20_000).overruled is None
    over = a_lease(shadow, 20_000)
    assert (over.overruled, over.gpu_uuid, over.seq) == ("leased", "GPU-n1-0", 2)


def limited(services: Services, **limits: int) -> Services:
    policy = ControlPolicy(agents={"ann": AgentLimits(**limits)})
    return replace(services, rules=lambda: policy)


def test_the_watermarks_of_an_agent_hold_and_open_again_lower(services: Services) -> None:
    held = limited(services, max_leased_mb=10_000, resume_leased_mb=3000)
    a_node(held)
    large, small = a_lease(held, 6000), a_lease(held, 3000)
    assert refused(held, 2000) == "agent_limit"
    assert a_lease(held, 8000, agent="bob")
    release_lease(held, small.token, who="ann")
    a_node(held)
    assert refused(held, 1000) == "agent_limit", "6000 MB are above the lower mark"
    release_lease(held, large.token, who="ann")
    a_node(held)
    assert a_lease(held, 1000)


def test_the_limit_of_an_agent_holds_for_requests_at_once(services: Services) -> None:
    held = limited(services, max_leased_mb=10_000)
    a_node(held, gpus=4)
    with ThreadPoolExecutor(6) as many:
        got = list(many.map(partial(ask, held), [3000] * 12))
    assert sum(isinstance(each, Lease) for each in got) == 3


def test_old_leases_are_removed_and_live_ones_kept(services: Services, clock: MovingClock) -> None:
    a_node(services)
    release_lease(services, a_lease(services).token, who="ann")
    clock.advance(timedelta(days=31))
    a_node(services)
    live = a_lease(services)
    assert services.database.transact(lambda tx: leases_sql.prune_leases(tx, tx.now() - timedelta(days=30))) == 1
    found = list_leases(services, agent=None, ended=True, after=None, limit=10).leases
    assert [each.token for each in found] == [live.token]


def test_a_list_is_paged_and_shows_live_ones_first_asked_for(services: Services) -> None:
    a_node(services)
    made = [a_lease(services, 10).token for _ in range(3)]
    release_lease(services, made[0], who="ann")
    page = list_leases(services, agent=None, ended=False, after=None, limit=1)
    assert [each.token for each in page.leases] == [made[2]]
    rest = list_leases(services, agent=None, ended=False, after=page.next, limit=5)
    assert [each.token for each in rest.leases] == [made[1]]
    assert list_leases(services, agent="bob", ended=True, after=None, limit=5).leases == ()


def test_l2_a_heartbeat_and_a_grant_at_the_edge_do_not_both_win(services: Services, clock: MovingClock) -> None:
    """The lease is over by its time; whoever writes first decides, and the other sees it."""
    a_node(services)
    lease = a_lease(services, 20_000, ttl_s=5)
    clock.advance(6 * SECOND)
    a_node(services)
    act: list[Callable[[], object]] = [
        lambda: keep_lease(services, lease.token),
        lambda: grant_lease(services, asked(20_000), new_token=new_token, who="test"),
    ]
    with ThreadPoolExecutor(2) as both:
        done = [both.submit(each) for each in act]
    assert isinstance(done[0].exception(), Gone)
    assert isinstance(done[1].result(), Lease)
