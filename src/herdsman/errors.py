"""What can go wrong, named by who must act.

HerdsmanError
├── InvalidRequest       the caller: the request can never succeed as it is
│   ├── TooLarge         the caller: a payload or a result is over its limit
│   └── InvalidSettings  a person: a setting is wrong, or two of them do not fit together
├── NotFound             the caller: there is no such thing
├── Unauthenticated      the caller: no token, or one that is not known, has expired or was revoked
├── Forbidden            the caller: the token is good, but not for this
├── TooMany              the caller: too much at once, ask again later
├── Overloaded           the caller: no more is taken in from anybody now, ask again later
├── Gone                 the caller: it was there and has ended; what was built on it must stop
├── Unreachable          the next try: the server did not answer, or what answered was not Herdsman
├── Conflict             the caller: the name is taken by something else
├── StaleWrite           the writer: the row has moved on, stop working on it
├── StoreUnavailable     the next try: the database did not answer, or could not take the write
│   ├── StoreUnwritable  a person: its disk is full, or it only lets itself be read
│   ├── OutcomeUnknown   the next try: the connection broke during COMMIT
│   └── ClaimsHeld       the next try: the database is away, and no claim is taken back meanwhile
├── StoreMisconfigured   a person: the database is not one that we can run on
├── ProviderUnavailable  the next cycle: the provider did not answer, or asked us to wait; nothing was started
│   ├── CapacityUnavailable  the next cycle: it has no such machine left
│   └── SpawnUnknown     the next cycle: a machine may have been started; look for it by name, never ask again
├── ProviderRejected     a person: the key, the balance or the request is wrong
├── ServiceUnavailable   the next look: an external service did not answer, or not in its own words
│   └── SubmissionUnknown  the next look: it may have taken the job; ask for its id before sending it again
└── ServiceRejected      the job, or a person: the service will not take it as it is
"""

from datetime import timedelta


class HerdsmanError(Exception):
    """The root: every error that we raise on purpose."""


class InvalidRequest(HerdsmanError):
    """The request can never succeed as it is; the message names the field and the value."""


class TooLarge(InvalidRequest):
    """A payload or a result is over its limit."""


class InvalidSettings(InvalidRequest):
    """A setting is wrong, or two of them do not fit together; the message names the variables."""


class NotFound(HerdsmanError):
    """There is no such job, worker, pool or lease."""


class Unauthenticated(HerdsmanError):
    """No token came, or it is not known, has expired or was revoked; who guesses is not told which."""


class Forbidden(HerdsmanError):
    """The token is good, but its role may not do this."""


class TooMany(HerdsmanError):
    """Too much at once; the same request may be sent again later."""

    def __init__(self, said: str, *, retry_after: timedelta | None = None, code: str | None = None) -> None:
        """`code` is a stable word for the limit that was reached."""
        super().__init__(said)
        self.retry_after = retry_after
        self.code = code


class Overloaded(TooMany):
    """Not this caller but all of them together are too much; the same request may be sent again later."""


class Gone(HerdsmanError):
    """It has ended: a lease that ran out is not given back to its holder."""


class Unreachable(HerdsmanError):
    """The server did not answer, or what answered was not Herdsman; whether the request arrived is not known."""


class Conflict(HerdsmanError):
    """The id is taken by a job with another body."""


class StaleWrite(HerdsmanError):
    """The row has moved on since it was read: whoever holds the old claim must stop."""


class StoreUnavailable(HerdsmanError):
    """The database did not answer or could not take the write; nothing was committed."""


class StoreUnwritable(StoreUnavailable):
    """The database answers but takes no writes: its disk is full, or it is read-only. Nothing was committed."""


class OutcomeUnknown(StoreUnavailable):
    """The connection broke during COMMIT: the write may or may not be there. Every command may be repeated."""


class ClaimsHeld(StoreUnavailable):
    """The database is away for everybody: no claim is taken back before its worker had the time to be heard again."""


class StoreMisconfigured(HerdsmanError):
    """The database is not one that we can run on; a person has to change something."""


class ProviderUnavailable(HerdsmanError):
    """The provider did not answer or asked us to wait; surely nothing was started or ended."""

    def __init__(self, said: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(said)
        self.retry_after = retry_after


class CapacityUnavailable(ProviderUnavailable):
    """The provider has no such machine left; no worker is to blame for that."""


class SpawnUnknown(ProviderUnavailable):
    """A machine may have been started: it counts as one until a complete listing lacks its name."""


class ProviderRejected(HerdsmanError):
    """The key, the balance or the request is wrong: asking again will not help."""


class ServiceUnavailable(HerdsmanError):
    """An external service did not answer, or not in its own words: nothing is known about the job."""


class SubmissionUnknown(ServiceUnavailable):
    """The service may have taken the job: ask for its id before sending it again."""


class ServiceRejected(HerdsmanError):
    """The service will not take the job as it is; surely nothing was queued."""

    def __init__(self, said: str, *, retry: bool = False) -> None:
        """`retry` where another machine, or a person at this one, could help; else the job itself is wrong."""
        super().__init__(said)
        self.retry = retry
