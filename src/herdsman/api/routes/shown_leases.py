"""Leases in the words of the wire, which knows nothing of the store."""

from herdsman.core.leasing import LeasePolicy
from herdsman.store.granting import Lease
from herdsman.wire.leases import LeaseAnswer, LeaseOut


def granted(lease: Lease, policy: LeasePolicy) -> LeaseAnswer:
    ttl = lease.ttl or policy.ttl
    return LeaseAnswer(
        granted=True,
        token=lease.token,
        lease_seq=lease.seq,
        mode=lease.mode,
        node_id=lease.node_id,
        gpu_index=lease.gpu_index,
        gpu_uuid=lease.gpu_uuid,
        memory_mb=lease.memory_mb,
        expires_at=lease.expires_at,
        ttl_seconds=ttl.total_seconds(),
        margin_seconds=policy.margin_of(ttl).total_seconds(),
        overruled=lease.overruled,
    )


def lease_out(lease: Lease) -> LeaseOut:
    return LeaseOut(
        token=lease.token,
        agent=lease.agent,
        agent_name=lease.agent,
        status=lease.state,
        reason=lease.reason,
        mode=lease.mode,
        node_id=lease.node_id,
        gpu_index=lease.gpu_index,
        gpu_uuid=lease.gpu_uuid,
        memory_mb=lease.memory_mb,
        exclusive=lease.exclusive,
        lease_seq=lease.seq,
        worker_id=lease.worker_id,
        created_at=lease.created_at,
        expires_at=lease.expires_at,
        last_heartbeat=lease.last_heartbeat,
        ended_at=lease.ended_at,
        overruled=lease.overruled,
        metadata=dict(lease.metadata),
    )
