"""Every refusal of Runpod, translated once into who must act.

    400 that speaks of capacity            CapacityUnavailable   the next candidate, or the next cycle
    400 "something went wrong"             unclear
    other 400, 401, 402, 409, 410, 422     ProviderRejected      a person
    403 from the API                       NotAllowed            a person; another GPU type may be allowed
    404 from the API                       NotThere              the verb decides: for an end it is success
    429                                    ProviderUnavailable   the next cycle, after the wait it asks for
    408, 5xx, whatever is not the API's    unclear

*Unclear* is `SpawnUnknown` for a create, which may have happened, and `ProviderUnavailable` for the rest.
"""

from collections.abc import Sequence

from herdsman.core.errors import CapacityUnavailable, HerdsmanError, ProviderRejected, ProviderUnavailable
from herdsman.providers.runpod.answers import Answer

NO_CAPACITY = (
    "no longer any instances available",
    "does not have the resources",
    "try a different machine",
    "not enough free gpus on the host machine",
    "enough disk space",
)
PASSING = "something went wrong"

BAD_REQUEST = 400
FORBIDDEN = 403
NOT_FOUND = 404
TIMED_OUT = 408
TOO_MANY = 429
SERVER_ERRORS = 500


class NotThere(ProviderRejected):
    """Runpod knows no such thing."""


class NotAllowed(ProviderRejected):
    """The key or the account may not do this."""


def refusal(
    answer: Answer, *, unclear: type[ProviderUnavailable], secrets: Sequence[str] = ()
) -> HerdsmanError:
    said, wait = answer.sentence(secrets), answer.wait()
    if answer.status == TOO_MANY:
        return ProviderUnavailable(said, retry_after=wait)
    problem = answer.problem()
    if problem is None or answer.status >= SERVER_ERRORS or answer.status == TIMED_OUT:
        return unclear(said, retry_after=wait)
    if answer.status == BAD_REQUEST:
        return _bad_request(problem.lower(), said, unclear)
    return {FORBIDDEN: NotAllowed, NOT_FOUND: NotThere}.get(answer.status, ProviderRejected)(said)


def _bad_request(problem: str, said: str, unclear: type[ProviderUnavailable]) -> HerdsmanError:
    if any(phrase in problem for phrase in NO_CAPACITY):
        return CapacityUnavailable(said)
    # It is how a failure inside Runpod is passed on, and promises nothing about what was done before it.
    return unclear(said) if PASSING in problem else ProviderRejected(said)
