"""What many failures have in common: the line that says what went wrong, without what differs each time."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import InvalidRequest, NotFound
from herdsman.ids import JobId
from herdsman.jobs import attempts_sql, sql
from herdsman.jobs.attempts_sql import FailedJob
from herdsman.jobs.wire import MOST_IN_BULK, BulkLineOut, BulkOut, FailureGroupOut, FailuresOut
from herdsman.states import JOB, JobStatus

LONGEST = 200
"""Of a cause, and of an example of it: it is a heading, and the whole error stands with the job."""
# Possessive: whoever writes an error must not make thousands of them slow to group.
_ID = re.compile(r"\b[0-9a-f]{8,}+\b(?:-[0-9a-f]{2,}+\b)*+", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_HEX = re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_SPACES = re.compile(r"\s+")


def cause_of(head: str, tail: str) -> str:
    """What groups it with others like it."""
    return normalised(line_of(head, tail))


def line_of(head: str, tail: str) -> str:
    """The line that says what went wrong, from the beginning and the end of an error. A traceback says what happened
    last, everything else first."""
    traced = head.startswith("Traceback ") or '\n  File "' in f"\n{tail}"
    lines = [line.strip() for line in (tail if traced else head).splitlines() if line.strip()]
    if not lines:
        return "no error was told"
    return lines[-1] if traced else lines[0]


def normalised(line: str) -> str:
    """Ids and numbers become signs, so that the same fault of a hundred jobs is one."""
    line = _ID.sub(lambda found: "#" if _DIGIT.search(found[0]) else found[0], _HEX.sub("#", line))
    return _SPACES.sub(" ", _NUMBER.sub("N", line)).strip()[:LONGEST]


def key_of(kind: str, failure_class: str | None, cause: str) -> str:
    """A short name for a group of failures, the same on every replica."""
    return sha256("\0".join((kind, failure_class or "", cause)).encode()).hexdigest()[:16]


MOST_GROUPS = 100
SAMPLES = 5
LONGEST_SAMPLE = 600
_BATCH = 50
"""Jobs that are changed in one transaction: others want to write, too."""
Change = Callable[[Tx, JobId], str]


def list_failures(services: Services, hours: int) -> FailuresOut:
    """Of the jobs that wait for another attempt or have given up, the largest group first."""
    since, found, full = _read(services, hours)
    groups: dict[str, list[FailedJob]] = {}
    for each in found:
        groups.setdefault(_key(each), []).append(each)
    shown = sorted(
        (_group(key, members) for key, members in groups.items()),
        key=lambda group: (-group.count, -group.last_at.timestamp()),
    )
    return FailuresOut(since=since, groups=tuple(shown[:MOST_GROUPS]), scanned=len(found), truncated=full)


def requeue_group(services: Services, key: str, *, hours: int, limit: int, who: str = "admin") -> BulkOut:
    """Those of the group that have given up run once more; the others do so by themselves."""
    _, found, _ = _read(services, hours)
    members = [each for each in found if _key(each) == key]
    if not members:
        raise NotFound(f"there is no group {key!r} among the failures of the last {hours} hours")
    dead = [JobId(each.job_id) for each in members if each.status is JobStatus.DEAD_LETTER]
    return retry_jobs(services, dead[:limit], who=who)


def cancel_jobs(
    services: Services, job_ids: Sequence[JobId], *, who: str = "admin", agent: str | None = None
) -> BulkOut:
    """Each by itself: one that is gone does not keep the others. `agent` is the only one whose jobs are seen."""

    def change(tx: Tx, job_id: JobId) -> str:
        state = _check_visible(tx, job_id, agent)
        if state in JOB.terminal:
            raise InvalidRequest(f"job {job_id!r} is {state}: it has ended already")
        return sql.cancel_job(tx, job_id, who).value

    return _each(services, job_ids, change)


def retry_jobs(
    services: Services, job_ids: Sequence[JobId], *, who: str = "admin", agent: str | None = None
) -> BulkOut:
    def change(tx: Tx, job_id: JobId) -> str:
        state = _check_visible(tx, job_id, agent)
        if sql.requeue_job(tx, [job_id], who, services.policy, None) == 0:
            raise InvalidRequest(f"job {job_id!r} is {state}: only a job that has ended can be requeued")
        return JobStatus.PENDING.value

    return _each(services, job_ids, change)


def _read(services: Services, hours: int) -> tuple[datetime, list[FailedJob], bool]:
    def read(tx: Tx) -> tuple[datetime, list[FailedJob], bool]:
        since = tx.now() - timedelta(hours=hours)
        return since, *attempts_sql.newest_failed(tx, since)

    return services.database.read(read)


def _group(key: str, members: Sequence[FailedJob]) -> FailureGroupOut:
    newest = members[0]
    return FailureGroupOut(
        key=key,
        cause=cause_of(newest.head, newest.tail),
        example=line_of(newest.head, newest.tail)[:LONGEST],
        sample_error=newest.tail.strip()[-LONGEST_SAMPLE:],
        type=newest.type,
        failure_class=newest.failure_class,
        count=len(members),
        first_at=members[-1].at,
        last_at=newest.at,
        statuses=dict(Counter(each.status.value for each in members)),
        sample_job_ids=tuple(each.job_id for each in members[:SAMPLES]),
    )


def _key(each: FailedJob) -> str:
    return key_of(each.type, each.failure_class, cause_of(each.head, each.tail))


def _check_visible(tx: Tx, job_id: JobId, agent: str | None) -> JobStatus:
    """To a submitter, the jobs of others do not exist (X2)."""
    job = sql.get_job(tx, job_id)
    if agent is not None and job.agent != agent:
        raise NotFound(f"there is no job {job_id!r}")
    return job.status


def _each(services: Services, job_ids: Sequence[JobId], change: Change) -> BulkOut:
    """Locked in the order of their ids, so that two who name the same jobs do not wait for each other."""
    wanted = list(dict.fromkeys(job_ids))
    if len(wanted) > MOST_IN_BULK:
        raise InvalidRequest(f"{len(wanted)} jobs were named, the limit is {MOST_IN_BULK} at a time")

    def change_some(tx: Tx, some: Sequence[JobId]) -> dict[JobId, BulkLineOut]:
        lines: dict[JobId, BulkLineOut] = {}
        for job_id in some:
            try:
                lines[job_id] = BulkLineOut(job_id=job_id, status=change(tx, job_id))
            except (NotFound, InvalidRequest) as error:
                lines[job_id] = BulkLineOut(job_id=job_id, status=None, refused=str(error))
        return lines

    ordered, answers = sorted(wanted), dict[JobId, BulkLineOut]()
    for start in range(0, len(ordered), _BATCH):
        some = ordered[start : start + _BATCH]
        answers |= services.database.transact(lambda tx, some=some: change_some(tx, some))
    lines = tuple(answers[each] for each in wanted)
    return BulkOut(jobs=lines, changed=sum(line.refused is None for line in lines))
