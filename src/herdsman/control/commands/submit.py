"""Accept jobs: stored before the answer, and stored once however often they are sent (J1, J2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from herdsman.control.admitting import NoBucket, Rules, admit, make_buckets, rules_for
from herdsman.control.services import Services
from herdsman.core.errors import Conflict, HerdsmanError, InvalidRequest, StoreUnavailable
from herdsman.core.model import JobId, NewJob, Submitted
from herdsman.core.request import body_hash, check
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.store import models, pools, submissions
from herdsman.store.submissions import LARGEST_BATCH, Draft

_TRIES = 5
_MANY_AT_ONCE = "the same jobs are being submitted by many at once: send the request again"


def submit_job(services: Services, new: NewJob) -> Submitted:
    return submit_jobs(services, [new])[0]


def submit_jobs(services: Services, news: Sequence[NewJob]) -> list[Submitted]:
    """All of them or, when one is refused, none. `TooMany` and `Overloaded` say which limit, and when to ask again."""
    batch = _checked(services, news)
    answers = _submit(services, batch, [batch.distinct])
    for answer in answers:
        if isinstance(answer, HerdsmanError):
            raise answer
    return [answer for answer in answers if isinstance(answer, Submitted)]


def submit_independently(services: Services, news: Sequence[NewJob]) -> list[Submitted | HerdsmanError]:
    """Jobs of different callers in one transaction; if one of them spoils it, each in a transaction of its own."""
    try:
        return submit_each(services, news)
    except (InvalidRequest, Conflict) as error:
        if len(news) == 1:
            return [error]
    answers: list[Submitted | HerdsmanError] = []
    for new in news:
        try:
            answers.append(submit_job(services, new))
        except HerdsmanError as error:
            answers.append(error)
    return answers


def submit_each(services: Services, news: Sequence[NewJob]) -> list[Submitted | HerdsmanError]:
    """In one transaction, but a limit refuses only the jobs that it is for. Any other fault is raised."""
    batch = _checked(services, news)
    return _submit(services, batch, [[draft] for draft in batch.distinct])


def _checked(services: Services, news: Sequence[NewJob]) -> "_Batch":
    if len(news) > LARGEST_BATCH:
        raise InvalidRequest(
            f"{len(news)} jobs were sent at once, the limit is {LARGEST_BATCH}: send them in parts"
        )
    return _Batch.of([_draft(services, new) for new in news])


def _submit(
    services: Services, batch: "_Batch", parcels: Sequence[Sequence[Draft]]
) -> list[Submitted | HerdsmanError]:
    rules = rules_for(services, [draft.new for draft in batch.distinct])
    if rules is not None:
        return _submit_limited(services, batch, parcels, rules)
    try:
        # Almost every submission is a new one: insert first, look only when that fails.
        services.database.transact(lambda tx: _store(tx, services, batch.distinct))
        return batch.answers({})
    except Duplicate:
        return _submit_rest(services, batch)


def _submit_limited(
    services: Services, batch: "_Batch", parcels: Sequence[Sequence[Draft]], rules: Rules
) -> list[Submitted | HerdsmanError]:
    for _ in range(_TRIES):
        try:
            return services.database.transact(lambda tx: _add_admitted(tx, services, batch, parcels, rules))
        except NoBucket as met:
            make_buckets(services, rules, met.agents)
        except Duplicate:  # somebody else submitted the same in this very moment: look again
            continue
    raise StoreUnavailable(_MANY_AT_ONCE)


def _add_admitted(
    tx: Tx, services: Services, batch: "_Batch", parcels: Sequence[Sequence[Draft]], rules: Rules
) -> list[Submitted | HerdsmanError]:
    """What is known already is neither refused nor charged (J2)."""
    known = _known(tx, [draft for draft in batch.distinct if _named(draft)])
    new = [[draft for draft in parcel if draft.job_id not in known] for parcel in parcels]
    judged: dict[JobId, Draft | HerdsmanError] = {}
    for parcel, answer in zip(new, admit(tx, rules, new), strict=True):
        for index, draft in enumerate(parcel):
            judged[draft.job_id] = answer if isinstance(answer, HerdsmanError) else answer[index]
    admitted = [draft for draft in judged.values() if isinstance(draft, Draft)]
    _store(tx, services, admitted)
    return batch.answers(known, judged)


def _submit_rest(services: Services, batch: "_Batch") -> list[Submitted | HerdsmanError]:
    for _ in range(_TRIES):
        try:
            return services.database.transact(lambda tx: _add_missing(tx, services, batch))
        except Duplicate:  # somebody else submitted the same in this very moment: look again
            continue
    raise StoreUnavailable(_MANY_AT_ONCE)


def _add_missing(tx: Tx, services: Services, batch: "_Batch") -> list[Submitted | HerdsmanError]:
    found = _known(tx, batch.distinct)
    _store(tx, services, [draft for draft in batch.distinct if draft.job_id not in found])
    return batch.answers(found)


def _store(tx: Tx, services: Services, drafts: Sequence[Draft]) -> None:
    """What is known already shows itself first: it is not refused although its pool is closed by now (J2)."""
    submissions.add(tx, drafts, services.policy)
    pools.require_open(tx, [draft.new.pool for draft in drafts])
    if services.policy.known_models_only:
        models.require_known(tx, {draft.new.model for draft in drafts if draft.new.model is not None})


def _known(tx: Tx, drafts: Sequence[Draft]) -> dict[JobId, JobId]:
    """Those that were submitted before, and the ids that they have."""
    if not drafts:
        return {}
    found = submissions.find(tx, drafts)
    return {draft.job_id: match.job_id for draft, match in zip(drafts, found, strict=True) if match}


def _named(draft: Draft) -> bool:
    """Whether it could have been submitted before: an id that was made here could not."""
    return draft.new.job_id is not None or draft.new.idempotency_key is not None


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

    def answers(
        self, found: Mapping[JobId, JobId], judged: Mapping[JobId, Draft | HerdsmanError] | None = None
    ) -> list[Submitted | HerdsmanError]:
        return [_answer(draft, found, judged or {}) for draft in self.sent]


def _answer(
    draft: Draft, found: Mapping[JobId, JobId], judged: Mapping[JobId, Draft | HerdsmanError]
) -> Submitted | HerdsmanError:
    if draft.job_id in found:
        return Submitted(found[draft.job_id], created=False)
    stored = judged.get(draft.job_id, draft)
    if isinstance(stored, HerdsmanError):
        return stored
    if stored.admission is None:
        return Submitted(draft.job_id, created=True)
    sent_away, put_off = stored.new.pool != draft.new.pool, stored.new.run_at != draft.new.run_at
    return Submitted(
        draft.job_id,
        created=True,
        admission=stored.admission,
        pool=stored.new.pool if sent_away else None,
        run_at=stored.new.run_at if put_off else None,
    )


def _names(draft: Draft) -> list[object]:
    """What a job of one request may not share with a different one."""
    key = draft.new.idempotency_key
    return [draft.job_id, *([(draft.new.agent, key)] if key else [])]


def _same(one: Draft, other: Draft) -> bool:
    names = (one.new.job_id, one.new.idempotency_key), (other.new.job_id, other.new.idempotency_key)
    return one.body_hash == other.body_hash and names[0] == names[1]
