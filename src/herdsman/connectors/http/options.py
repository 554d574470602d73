"""What the operator says about a service, checked before the first job; what is wrong is named by its option."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainValidator, SecretStr, model_validator

from herdsman.connectors.http import template
from herdsman.connectors.http.template import JsonPath
from herdsman.connectors.registry import Options

Json = dict[str, object] | list[object] | str | int | float | bool | None
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Status = Annotated[int, Field(ge=400, le=599)]
Path = Annotated[JsonPath, PlainValidator(lambda given: given if isinstance(given, JsonPath) else JsonPath(given))]
Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]

_WITH_CALLBACK = template.JOB | {"callback_url"}
_WITH_ID = frozenset({"id"})


def _check_url(url: str, known: frozenset[str]) -> str:
    template.check(url, known)
    parts = urlsplit(url)
    whole = next(iter(template.places(url)), None)
    if url != f"{{{whole}}}" and (parts.scheme not in {"http", "https"} or not parts.netloc):
        raise ValueError(f"{url!r} is no address; write http://HOST/PATH or https://HOST/PATH")
    if "@" in parts.netloc:
        raise ValueError("a user or a password in an address is not kept secret; put it into headers")
    return url


SubmitUrl = Annotated[str, AfterValidator(lambda url: _check_url(url, _WITH_CALLBACK))]
IdUrl = Annotated[str, AfterValidator(lambda url: _check_url(url, _WITH_ID))]
PlainUrl = Annotated[str, AfterValidator(lambda url: _check_url(url, frozenset()))]


class Submit(Options):
    url: SubmitUrl
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: Mapping[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    body: Json = Field(default="{payload}", alias="json")
    """A template; the payload itself unless said otherwise."""

    @model_validator(mode="after")
    def places_can_be_filled(self) -> Self:
        template.check(self.body, _WITH_CALLBACK)
        template.check([each.get_secret_value() for each in self.headers.values()], _WITH_CALLBACK)
        return self


class StatusOptions(Options):
    """Where a job stands: in the answer of `url`, and in what the service posts to our callback."""

    url: IdUrl | None = None
    interval_s: Seconds = 2
    path: Path | None = None
    done: tuple[Json, ...] = ()
    failed: tuple[Json, ...] = ()
    cancelled: tuple[Json, ...] = ()
    queued: tuple[Json, ...] = ()
    running: tuple[Json, ...] = ()
    error: Path | None = None
    progress: Path | None = None
    progress_scale: float = Field(default=1, gt=0)
    """What the service calls all of it: 1, or 100."""
    seconds: Path | None = None
    """How long the service worked on it."""

    @model_validator(mode="after")
    def an_end_can_be_seen(self) -> Self:
        if (self.path is None) != (not self.done):
            raise ValueError("path and done belong together: where the status stands, and which values are the end")
        if self.url is not None and self.path is None:
            raise ValueError("path is missing: say where in the answer of url the status stands")
        return self


class Result(Options):
    path: Path | None = None
    """Which part of the answer is the result; all of it unless said otherwise."""
    url: str | None = None
    """Where the result is, when it is not in the answer itself; or the JSONPath at which the answer says so."""
    files: Path | None = None
    """Where the URLs of files stand, to be put into the result store."""

    @model_validator(mode="after")
    def url_is_an_address_or_a_path(self) -> Self:
        if self.url is not None:
            _ = self.url_path or _check_url(self.url, template.JOB | _WITH_ID)
        return self

    @property
    def url_path(self) -> JsonPath | None:
        return JsonPath(self.url) if self.url is not None and self.url.startswith("$") else None


class Cancel(Options):
    url: IdUrl
    method: Method = "POST"


class Callback(Options):
    """Where the service may post news of a job. The address is given to it as `{callback_url}`."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    public_url: PlainUrl | None = None
    """How the service reaches host and port; that very address unless said otherwise."""


class HttpOptions(Options):
    submit: Submit
    id: Path | None = None
    """Where the service's own id stands in its answer; without it the service takes ours."""
    status: StatusOptions = Field(default_factory=StatusOptions)
    sync: bool = False
    """The answer to the submission is the result."""
    sync_timeout_s: Annotated[float, Field(gt=0, le=86400)] = 3600
    callback: Callback | None = None
    result: Result = Field(default_factory=Result)
    cancel: Cancel | None = None
    health: PlainUrl | None = None
    headers: Mapping[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 5
    not_found: frozenset[Status] = frozenset({404, 410})
    retry_status: frozenset[Status] = frozenset({408, 425, 429, 500, 502, 503, 504})
    allow_hosts: tuple[str, ...] = ()
    """More hosts that URLs from payloads and answers may name, though they are not public."""
    max_answer_mb: Annotated[int, Field(ge=1, le=1024)] = 16

    @model_validator(mode="after")
    def its_parts_fit_together(self) -> Self:
        follows = self.status.url is not None or self.callback is not None
        if self.sync and (follows or self.id is not None or self.cancel is not None):
            raise ValueError("sync stands alone: id, status, cancel and callback are for services that answer later")
        if not self.sync and not follows:
            raise ValueError("nothing says how a job ends: set status.url, callback or sync")
        if self.callback is None and "callback_url" in set(template.places([self.submit.url, self.submit.body])):
            raise ValueError("{callback_url} is asked for, and there is no callback: set callback.host and port")
        return self

    def own_hosts(self) -> tuple[str, ...]:
        """Those that the operator wrote: they may be anywhere. A host that a payload fills in may not."""
        urls = (self.submit.url, self.status.url, self.result.url, self.health, self.cancel and self.cancel.url)
        hosts: set[str] = set()
        for each in urls:
            parts = urlsplit(each or "")
            name = parts.netloc.rpartition("@")[2]
            if name and "{" not in parts.netloc:
                # With its port, since another port of the same machine may be something else altogether.
                usual = 443 if parts.scheme == "https" else 80
                hosts.add(name if parts.port else f"{name.rstrip(':')}:{usual}")
        return tuple(sorted(hosts))
