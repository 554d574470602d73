"""Questions about jobs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.errors import Conflict, HerdsmanError, InvalidRequest, StoreUnavailable
from herdsman.fleet import sql as fleet_sql
from herdsman.ids import JobId, WorkerId
from herdsman.jobs import attempts_sql, running_sql, sql
from herdsman.jobs.model import Attempt, AuditEntry, ClaimKey, Job, JobFilter, NewJob, Submitted
from herdsman.jobs.rules import body_hash, check
from herdsman.jobs.sql import LARGEST_BATCH, Draft, Page
from herdsman.jobs.worker_commands import refusal
from herdsman.json_text import encode
from herdsman.limits.admit import NoBucket, Rules, admit, make_buckets, rules_now
from herdsman.pools.sql import CLOSED_POOLS
from herdsman.states import JOB, JobStatus


def find_job(services: Services, job_id: JobId) -> Job:
    return services.database.read(lambda tx: sql.get_job(tx, job_id))


def list_jobs(
    services: Services, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 50
) -> Page:
    """Newest first, a page at a time; `after` is the `next` of the page before."""
    return services.database.read(lambda tx: sql.page_jobs(tx, wanted or JobFilter(), after=after, limit=limit))


def count_jobs(services: Services) -> Mapping[JobStatus, int]:
    return services.database.read(sql.count_by_state)


def find_attempts(services: Services, job_id: JobId) -> Sequence[Attempt]:
    return services.database.read(lambda tx: sql.list_attempts(tx, job_id))


def find_history(services: Services, job_id: JobId) -> Sequence[AuditEntry]:
    return services.database.read(lambda tx: sql.job_history(tx, JOB.kind, job_id))


_TRIES = 6


def submit_job(services: Services, new: NewJob) -> Submitted:
    return submit_jobs(services, [new])[0]


def submit_jobs(services: Services, news: Sequence[NewJob]) -> list[Submitted]:
    """All of them or, when one is refused, none. `TooMany` and `Overloaded` say which limit, and when to ask again."""
    if len(news) > LARGEST_BATCH:
        raise InvalidRequest(f"{len(news)} jobs were sent at once, the limit is {LARGEST_BATCH}: send them in parts")
    sent = named_once([draft_of(services, new) for new in news])
    distinct = list({draft.job_id: draft for draft in sent}.values())
    rules = rules_for(services, news)
    # Almost every submission is a new one: where nothing limits it, insert first and look only when that fails.
    look = rules is not None
    for _ in range(_TRIES):
        try:
            answers = services.database.transact(
                lambda tx, look=look: add_jobs(tx, services, sent, [distinct], rules, look=look)
            )
        except NoBucket as met:
            assert rules is not None
            make_buckets(services, rules, met.agents)
        except Duplicate:  # somebody else submitted the same, before or in this very moment
            look = True
        else:
            accepted: list[Submitted] = []
            for answer in answers:
                if isinstance(answer, HerdsmanError):
                    raise answer
                accepted.append(answer)
            return accepted
    raise StoreUnavailable("the same jobs are being submitted by many at once: send the request again")


def draft_of(services: Services, new: NewJob) -> Draft:
    payload = check(new, services.policy)
    return Draft(new.job_id or services.new_job_id(), new, payload, body_hash(new))


def named_once(drafts: Iterable[Draft]) -> list[Draft]:
    """The same job sent twice is one job here, as it is in two transactions; `Conflict` where two of one name differ."""
    sent, named = list[Draft](), dict[object, Draft]()
    for draft in drafts:
        key = draft.new.idempotency_key
        names = [draft.job_id, *([(draft.new.agent, key)] if key else [])]
        first = next((named[name] for name in names if name in named), draft)
        same = (first.body_hash, first.new.job_id, first.new.idempotency_key)
        if same != (draft.body_hash, draft.new.job_id, key):
            raise Conflict(f"two jobs of this request have the name {draft.job_id} and differ")
        named.update(dict.fromkeys(names, first))
        sent.append(first)
    return sent


def rules_for(services: Services, news: Sequence[NewJob]) -> Rules | None:
    """None where nothing limits these agents. Not within a transaction: it may have to read which gates are closed."""
    policy = services.rules()
    return rules_now(services, policy) if policy.limits_submission(new.agent for new in news) else None


def add_jobs(
    tx: Tx,
    services: Services,
    sent: Sequence[Draft],
    groups: Sequence[Sequence[Draft]],
    rules: Rules | None,
    *,
    look: bool,
) -> list[Submitted | HerdsmanError]:
    """What is known already is neither refused nor charged (J2). A limit refuses a group as a whole."""
    # An id that was made here could not have been submitted before.
    named = [draft for draft in sent if draft.new.job_id is not None or draft.new.idempotency_key is not None]
    known = sql.find_submitted(tx, named) if look and named else {}
    new = [[draft for draft in group if draft.job_id not in known] for group in groups]
    judged: dict[JobId, Draft | HerdsmanError] = {draft.job_id: draft for group in new for draft in group}
    if rules is not None:
        for group, answer in zip(new, admit(tx, rules, new), strict=True):
            for index, draft in enumerate(group):
                judged[draft.job_id] = answer if isinstance(answer, HerdsmanError) else answer[index]
    admitted = [draft for draft in judged.values() if isinstance(draft, Draft)]
    # The insert comes first, so that a job which is known already is not refused for a pool that is closed by now (J2).
    sql.add_jobs(tx, admitted, services.policy)
    # Nothing waits for a pool that is closed. One that nobody knows may still come (J1).
    pools = sorted({draft.new.pool for draft in admitted})
    for pool_id, status in tx.rows(CLOSED_POOLS, {}, pools) if pools else ():
        raise Conflict(
            f"pool {pool_id!r} is {status} and takes no jobs: start it again with POST /workers/pool"
            " (herdsman pool create), or name another pool"
        )
    if services.policy.known_models_only:
        fleet_sql.require_known(tx, {draft.new.model for draft in admitted if draft.new.model is not None})
    answers: list[Submitted | HerdsmanError] = []
    made: set[JobId] = set()
    for draft in sent:
        stored = judged.get(draft.job_id)
        if stored is None:
            answer = Submitted(known[draft.job_id], created=False)
        elif isinstance(stored, HerdsmanError):
            answer = stored
        elif draft.job_id in made:  # it came twice, and one of the two made it
            answer = Submitted(draft.job_id, created=False)
        else:
            answer = Submitted(
                draft.job_id,
                created=True,
                admission=stored.admission,
                pool=stored.new.pool if stored.new.pool != draft.new.pool else None,
                run_at=stored.new.run_at if stored.new.run_at != draft.new.run_at else None,
            )
        made.add(draft.job_id)
        answers.append(answer)
    return answers


def cancel_job(services: Services, job_id: JobId, *, who: str = "admin") -> JobStatus:
    """From here on the job is never done (J7). A held one is `cancelled` once its worker has stopped it."""
    return services.database.transact(lambda tx: sql.cancel_job(tx, job_id, who))


def requeue_job(services: Services, job_id: JobId, *, who: str = "admin") -> None:
    """Run a job that has ended once more."""
    services.database.transact(lambda tx: _requeue_one(tx, services, job_id, None, who))


def requeue_edited_job(services: Services, job_id: JobId, payload: object, *, who: str = "admin") -> None:
    """The same, with another payload; the audit says that it was changed."""
    text = encode(payload, what="payload", limit=services.policy.max_payload_bytes)
    services.database.transact(lambda tx: _requeue_one(tx, services, job_id, text, who))


def _requeue_one(tx: Tx, services: Services, job_id: JobId, payload: str | None, who: str) -> None:
    job = sql.get_job(tx, job_id)
    if sql.requeue_job(tx, [job_id], who, services.policy, payload) == 0:
        raise InvalidRequest(f"job {job_id!r} is {job.status}: only a job that has ended can be requeued")


MOST_PIECES = 200
MOST_EVENTS = 1000
SETTLED = timedelta(seconds=2)
"""A gap in the audit's numbers is a transaction under way; one that is older was given up."""


@dataclass(frozen=True, slots=True)
class LogPage:
    pieces: Sequence[attempts_sql.Piece]
    next: str
    """Send it as `since` to get what came later."""
    ended: bool


def read_logs(services: Services, job_id: JobId, *, since: str | None = None, limit: int = MOST_PIECES) -> LogPage:
    token, dot, line = ("0.0" if since is None else since).partition(".")
    if not (dot and token.isdecimal() and line.isdecimal() and len(token) + len(line) < 39):
        raise InvalidRequest(f"since is {(since or '')[:60]!r}: it must be the `next` of an earlier answer")
    after = (min(int(token), 2**63 - 1), min(int(line), 2**31 - 1))

    def read(tx: Tx) -> LogPage:
        job = sql.get_job(tx, job_id)  # read first: what a job wrote before its end is there then
        pieces = attempts_sql.read_logs(tx, job_id, after, min(limit, MOST_PIECES))
        last = pieces[-1] if pieces else None
        reached = after if last is None else (last.claim_token, last.first + len(last.lines))
        ended = job.status in JOB.terminal and len(pieces) < limit
        return LogPage(pieces, f"{reached[0]}.{reached[1]}", ended)

    return services.database.read(read)


def read_events(services: Services, after: int, *, limit: int = MOST_EVENTS) -> Sequence[AuditEntry]:
    """Everything that happened since the event `after`, in order; nothing that is still being written is passed over."""
    return services.database.read(lambda tx: sql.list_events(tx, after, limit, SETTLED))


def last_event(services: Services) -> int:
    return services.database.read(sql.last_event)


def get_checkpoint(services: Services, key: ClaimKey, *, worker: WorkerId | None = None) -> object:
    """What an earlier attempt, or this one, has put there."""

    def get(tx: Tx) -> str | None:
        if running_sql.holding(tx, key, worker) is None:
            raise refusal(tx, key, "read the checkpoint of")
        return attempts_sql.get_checkpoint(tx, key.job_id)

    text = services.database.transact(get)
    return None if text is None else json.loads(text)


def put_checkpoint(services: Services, key: ClaimKey, value: object, *, worker: WorkerId | None = None) -> None:
    text = encode(value, what="checkpoint", limit=services.policy.max_result_bytes)

    def put(tx: Tx) -> None:
        if running_sql.holding(tx, key, worker) is None:
            raise refusal(tx, key, "leave a checkpoint for")
        attempts_sql.put_checkpoint(tx, key, text)

    services.database.transact(put)
