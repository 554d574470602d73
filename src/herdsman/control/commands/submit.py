"""Accept jobs: stored before the answer, and stored once however often they are sent (J1, J2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from herdsman.control.services import Services
from herdsman.core.errors import Conflict, InvalidRequest, StoreUnavailable
from herdsman.core.model import JobId, NewJob, Submitted
from herdsman.core.request import body_hash, check
from herdsman.store import submissions
from herdsman.store.database import Tx
from herdsman.store.faults import Duplicate
from herdsman.store.submissions import LARGEST_BATCH, Draft

_TRIES = 5


def submit_job(services: Services, new: NewJob) -> Submitted:
    return submit_jobs(services, [new])[0]


def submit_jobs(services: Services, news: Sequence[NewJob]) -> list[Submitted]:
    """All of them or, when one is refused, none."""
    if len(news) > LARGEST_BATCH:
        raise InvalidRequest(
            f"{len(news)} jobs were sent at once, the limit is {LARGEST_BATCH}: send them in parts"
        )
    batch = _Batch.of([_draft(services, new) for new in news])
    try:
        # Almost every submission is a new one: insert first, look only when that fails.
        services.database.transact(lambda tx: submissions.add(tx, batch.distinct, services.policy))
        return batch.answers({})
    except Duplicate:
        return _submit_rest(services, batch)


def _submit_rest(services: Services, batch: "_Batch") -> list[Submitted]:
    for _ in range(_TRIES):
        try:
            return services.database.transact(lambda tx: _add_missing(tx, services, batch))
        except Duplicate:  # somebody else submitted the same in this very moment: look again
            continue
    raise StoreUnavailable("the same jobs are being submitted by many at once: send the request again")


def _add_missing(tx: Tx, services: Services, batch: "_Batch") -> list[Submitted]:
    known = submissions.find(tx, batch.distinct)
    found = {draft.job_id: match.job_id for draft, match in zip(batch.distinct, known, strict=True) if match}
    submissions.add(tx, [draft for draft in batch.distinct if draft.job_id not in found], services.policy)
    return batch.answers(found)


def _draft(services: Services, new: NewJob) -> Draft:
    payload = check(new, services.policy)
    return Draft(new.job_id or services.new_job_id(), new, payload, body_hash(new))


@dataclass(frozen=True, slots=True)
class _Batch:
    """The drafts of one request. The same job sent twice in it is one job, as it is in two requests."""

    distinct: list[Draft]
    sent: list[Draft]

    @staticmethod
    def of(drafts: Sequence[Draft]) -> "_Batch":
        named: dict[object, Draft] = {}
        distinct: dict[JobId, Draft] = {}
        sent: list[Draft] = []
        for draft in drafts:
            twin = next((named[name] for name in _names(draft) if name in named), draft)
            if not _same(twin, draft):
                raise Conflict(f"two jobs of this request have the name {_names(draft)[0]} and differ")
            named.update(dict.fromkeys(_names(draft), twin))
            distinct[twin.job_id] = twin
            sent.append(twin)
        return _Batch(list(distinct.values()), sent)

    def answers(self, found: dict[JobId, JobId]) -> list[Submitted]:
        return [
            Submitted(found.get(draft.job_id, draft.job_id), draft.job_id not in found) for draft in self.sent
        ]


def _names(draft: Draft) -> list[object]:
    """What a job of one request may not share with a different one."""
    key = draft.new.idempotency_key
    return [draft.job_id, *([(draft.new.agent, key)] if key else [])]


def _same(one: Draft, other: Draft) -> bool:
    names = (one.new.job_id, one.new.idempotency_key), (other.new.job_id, other.new.idempotency_key)
    return one.body_hash == other.body_hash and names[0] == names[1]
