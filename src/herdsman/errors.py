"""What can go wrong. Each error says first who must act: the caller, a person, or whatever tries next."""

from datetime import timedelta


class HerdsmanError(Exception):
    """The root: every error that we raise on purpose."""


class InvalidRequest(HerdsmanError):
    """The caller: the request can never succeed as it is; the message names the field and the value."""


class TooLarge(InvalidRequest):
    """The caller: a payload or a result is over its limit."""


class InvalidSettings(InvalidRequest):
    """A person: a setting is wrong, or two of them do not fit together; the message names the variables."""


class NotFound(HerdsmanError):
    """The caller: there is no such job, worker, pool or lease."""


class Unauthenticated(HerdsmanError):
    """The caller: no token came, or it is not known, has expired or was revoked; who guesses is not told which."""


class Forbidden(HerdsmanError):
    """The caller: the token is good, but its role may not do this."""


class TooMany(HerdsmanError):
    """The caller: too much at once; the same request may be sent again later."""

    def __init__(self, said: str, *, retry_after: timedelta | None = None, code: str | None = None) -> None:
        """`code` is a stable word for the limit that was reached."""
        super().__init__(said)
        self.retry_after = retry_after
        self.code = code


class Overloaded(TooMany):
    """The caller, later: all callers together are too much; the same request may be sent again."""


class Gone(HerdsmanError):
    """The caller: it has ended; a lease that ran out is not given back to its holder."""


class Unreachable(HerdsmanError):
    """The next try: no answer came, or none of Herdsman's; whether the request arrived is not known."""


class Conflict(HerdsmanError):
    """The caller: the id is taken by a job with another body."""


class StaleWrite(HerdsmanError):
    """The writer: the row has moved on since it was read: whoever holds the old claim must stop."""


class StoreUnavailable(HerdsmanError):
    """The next try: the database did not answer or could not take the write; nothing was committed."""


class StoreUnwritable(StoreUnavailable):
    """A person: the database takes no writes, as with a full disk or a read-only one. Nothing was committed."""


class OutcomeUnknown(StoreUnavailable):
    """The next try: the connection broke during COMMIT; the write may be there. Every command may be repeated."""


class ClaimsHeld(StoreUnavailable):
    """The next try: the database is away for everybody; no claim is taken back before its worker could be heard."""


class StoreMisconfigured(HerdsmanError):
    """A person: the database is not one that we can run on; a person has to change something."""


class ProviderUnavailable(HerdsmanError):
    """The next cycle: the provider did not answer or asked us to wait; surely nothing was started or ended."""

    def __init__(self, said: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(said)
        self.retry_after = retry_after


class CapacityUnavailable(ProviderUnavailable):
    """The next cycle: the provider has no such machine left; no worker is to blame for that."""


class SpawnUnknown(ProviderUnavailable):
    """The next cycle: a machine may have been started: it counts as one until a complete listing lacks its name."""


class ProviderRejected(HerdsmanError):
    """A person: the key, the balance or the request is wrong: asking again will not help."""


class ServiceUnavailable(HerdsmanError):
    """The next look: an external service did not answer, or not in its own words: nothing is known about the job."""


class SubmissionUnknown(ServiceUnavailable):
    """The next look: the service may have taken the job: ask for its id before sending it again."""


class ServiceRejected(HerdsmanError):
    """The job, or a person: the service will not take the job as it is; surely nothing was queued."""

    def __init__(self, said: str, *, retry: bool = False) -> None:
        """`retry` where another machine, or a person at this one, could help; else the job itself is wrong."""
        super().__init__(said)
        self.retry = retry
