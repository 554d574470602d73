"""Replies are read off the values of the core, and bodies of requests become them, by one rule for all."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from herdsman.errors import InvalidRequest
from herdsman.fleet.model import GpuDevice, GpuReport
from herdsman.ids import LONGEST, JobId, WorkerId, check_model, check_name
from herdsman.jobs.model import AuditEntry, Claim, ClaimKey, NewJob
from herdsman.jobs.wire import AttemptOut, EventOut, JobIn
from herdsman.jobs.worker_wire import ClaimOut, ReportIn
from herdsman.leases.wire import LeaseIn
from herdsman.pools.wire import PoolIn
from herdsman.wire import lease_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def claim(timeout: timedelta | None) -> Claim:
    return Claim(
        key=ClaimKey(JobId("job-1"), 7),
        worker_id=WorkerId("gpu-1"),
        type="image",
        payload={"n": 1},
        attempt=2,
        timeout=timeout,
        expires_at=NOW,
        service_job_id=None,
    )


@pytest.mark.parametrize("timeout", [None, timedelta(seconds=1.5)])
def test_a_claim_is_the_same_on_the_other_side(timeout: timedelta | None) -> None:
    sent = ClaimOut.of(claim(timeout)).model_dump_json()
    assert ClaimOut.model_validate_json(sent).claim() == claim(timeout)


def test_durations_are_seconds_in_json() -> None:
    assert ClaimOut.of(claim(timedelta(minutes=2))).model_dump()["timeout_seconds"] == 120.0
    assert JobIn(type="image", delay_seconds=3).new_job() == NewJob(type="image", delay=timedelta(seconds=3))


def test_a_report_of_gpus_keeps_its_age_and_its_devices() -> None:
    device = GpuDevice(index=0, uuid="GPU-0", name="H200", total_mb=100, used_mb=1, processes=((5, None),))
    report = GpuReport(ready=True, seen=True, vram_age=timedelta(seconds=9), devices=(device,), node="n1")
    assert ReportIn.model_validate_json(ReportIn.of(report).model_dump_json()).report() == report


def test_a_reply_that_lacks_a_field_of_its_value_is_an_error() -> None:
    with pytest.raises(ValidationError, match="claim_token"):
        AttemptOut.of(claim(None))


def test_an_event_of_a_lease_never_shows_its_token() -> None:
    entry = AuditEntry(
        id=1,
        ts=NOW,
        event_type="lease.granted",
        kind="lease",
        object_id="s3cret-token-0123",
        seq=1,
        from_status=None,
        to_status="active",
        reason="granted",
        actor="ann",
        details={},
    )
    assert EventOut.of(entry).object_id == lease_id("s3cret-token-0123")
    with pytest.raises(ValidationError):
        EventOut.model_validate(entry)


@pytest.mark.parametrize("spelling", ["delay", "timeout", "retry_base"])
def test_a_request_has_one_spelling(spelling: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        JobIn.model_validate({"type": "image", spelling: 5})


def limits(model: type[BaseModel]) -> Iterator[tuple[str, int]]:
    """Of the fields that are names: those whose description has a pattern."""
    described: dict[str, Any] = model.model_json_schema()["properties"]
    for field, found in described.items():
        for each in (found, *found.get("anyOf", ()), found.get("items", {})):
            if "pattern" in each:
                yield field, each["maxLength"]


@pytest.mark.parametrize("model", [JobIn, LeaseIn, PoolIn])
def test_a_name_as_long_as_described_is_taken_and_a_longer_one_is_not(model: type[BaseModel]) -> None:
    named = {
        "tags": "tag",
        "agent_name": "agent",
        "model_id": "model",
        "adapter": "model",
        "preload": "model",
    }
    found = dict(limits(model))
    assert found
    for field, longest in found.items():
        name = named.get(field, field)
        check = check_model if name == "model" else check_name
        assert longest == LONGEST[name], field
        check(name, "x" * longest)
        with pytest.raises(InvalidRequest, match=f"the limit is {longest}"):
            check(name, "x" * (longest + 1))
