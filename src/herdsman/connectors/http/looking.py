"""What the service itself says of a job: asked where it stands, or at the end of a call."""

from herdsman.connectors.http import template
from herdsman.connectors.http.options import HttpOptions
from herdsman.connectors.http.reading import broken, finished, verdict_of
from herdsman.connectors.http.submitting import refused
from herdsman.connectors.http.wire import Answer, Question, Wire
from herdsman.core.errors import HerdsmanError, ServiceRejected, ServiceUnavailable, TooLarge
from herdsman.core.retry import FailureClass
from herdsman.core.service import Broken, Unknown, Verdict


def look(wire: Wire, options: HttpOptions, external_id: str, timeout_s: float) -> Verdict:
    """An answer that is not one of this service is no verdict."""
    assert options.status.url is not None
    url = template.fill_url(options.status.url, {"id": external_id})
    answer = wire.ask(Question(method="GET", url=url, timeout_s=timeout_s))
    if answer.status in options.not_found:
        return Unknown(f"{answer.asked} answered {answer.status}")
    if not answer.is_good:
        hint = "; see option headers" if answer.status in {401, 403} else ""
        raise ServiceUnavailable(f"{answer.asked} answered {answer.status}: {answer.said()}{hint}")
    try:
        return verdict_of(answer.document(), options.status)
    except ValueError as error:
        raise ServiceUnavailable(str(error)) from error


def judge_call(outcome: Answer | HerdsmanError, options: HttpOptions) -> Verdict:
    """The answer to a call is the end of the job, one way or the other."""
    if not isinstance(outcome, Answer):
        return _failed(outcome)
    if not outcome.is_good:
        return _failed(refused(outcome, options))
    try:
        return finished(outcome.document(), options.status)
    except ValueError as error:
        return broken(str(error), FailureClass.INFRASTRUCTURE)


def _failed(error: HerdsmanError) -> Broken:
    """The job is to blame where the service says that it is wrong, and for nothing else."""
    own = isinstance(error, TooLarge) or (isinstance(error, ServiceRejected) and not error.retry)
    return broken(str(error), FailureClass.USER_ERROR if own else FailureClass.INFRASTRUCTURE)
