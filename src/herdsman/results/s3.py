"""Files in a bucket of S3, or of a server that speaks like it: `<prefix>/<job id>/<name>`."""

import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import IO, Any
from urllib.parse import quote, unquote

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store as Bucket

from herdsman.errors import InvalidSettings, ServiceUnavailable
from herdsman.results import files
from herdsman.results.options import ResultOptions

# A listing has no errors of its own: there only the text tells what the server said.
_NO_BUCKET = "NoSuchBucket"
_REFUSALS = ("403 Forbidden", "401 Unauthorized")
_LONGEST = 300
_SUM = "sha256"
_AGENT = "agent"
_PART = 8 * 1024 * 1024
_AT_ONCE = 4
_CONNECT = timedelta(seconds=5)
_SILENCE = timedelta(minutes=2)
"""A part on its way counts as silence too."""
_WHOLE = timedelta(hours=1)
_PATIENCE = timedelta(seconds=60)


@contextmanager
def _room(what: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ServiceUnavailable(
            f"{what} could not be collected in {tempfile.gettempdir()}: {error.strerror or error};"
            " free space there, or set TMPDIR to another place"
        ) from error


class S3Store(files.FileStore):
    def __init__(self, options: ResultOptions, agent: str | None = None) -> None:
        super().__init__(options, agent)
        self._name, _, prefix = options.place.removeprefix("s3://").partition("/")
        if not self._name:
            raise InvalidSettings(f"RESULT_STORE is {options.place!r}: it must be s3://BUCKET or s3://BUCKET/PREFIX")
        self._root = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._place = f"s3://{self._name}/{self._root}".rstrip("/")
        self._bucket = _opened(self._name, options)

    def keep(self, job_id: str, name: str, content: Iterable[bytes]) -> tuple[str, str, files.Measured]:
        """By way of a temporary file: its sum and its name have to be known before it is sent."""
        what = files.described(job_id, name)
        with _room(what):
            # It has no name, so that nothing is left behind whatever happens to this process.
            spool = tempfile.TemporaryFile()  # noqa: SIM115  (closed below; errors of the two differ)
        with spool as file:

            def write(piece: bytes) -> None:
                with _room(what):
                    file.write(piece)
                    file.flush()

            measured = self.measured(what, content, write)
            kept = self._placed(file, job_id, name, measured)
        return kept, self._uri(job_id, kept), measured

    def read_own(self, uri: str) -> Iterator[bytes]:
        return self._pieces(uri, {})

    def part(self, uri: str, first: int, length: int) -> Iterator[bytes]:
        return self._pieces(uri, {"range": (first, first + length)}) if length else iter(())

    def size(self, uri: str) -> int:
        with self._reached(uri):
            return self._bucket.head(self._key(uri))["size"]

    def find(self, job_id: str, name: str) -> str | None:
        if not files.may_be_kept(job_id, name):
            return None
        return None if self._sum_of(f"{self._root}{job_id}/{name}") is None else self._uri(job_id, name)

    def drop(self, job_id: str) -> None:
        with self._reached(f"{self._place}/{files.check_job(job_id)}"):
            keys = [each["path"] for each in self._listed(job_id)]
            if keys:
                self._bucket.delete(keys)

    def _placed(self, file: IO[bytes], job_id: str, wanted: str, measured: files.Measured) -> str:
        """Under the first name that is free. The same file once more is the file that is there."""
        for name in files.candidates(wanted):
            key = f"{self._root}{job_id}/{name}"
            there = self._sum_of(key)
            if there == measured.sha256:
                return name
            if there is not None:
                continue
            what = files.described(job_id, name)
            with self._reached(what):
                others = sum(each["size"] for each in self._listed(job_id))
            self.check_job_size(what, measured.bytes, others)
            file.seek(0)
            with self._reached(what):
                self._bucket.put(
                    key,
                    file,
                    attributes={
                        "Content-Type": files.content_type(name),
                        _SUM: measured.sha256,
                        **({_AGENT: self.agent} if self.agent else {}),
                    },
                    chunk_size=_PART,
                    max_concurrency=_AT_ONCE,
                )
            return name
        raise AssertionError("the candidates end with an error")

    def _sum_of(self, key: str) -> str | None:
        """None where there is nothing; a file that another program put there has no sum, and is no file of ours."""
        with self._reached(key):
            try:
                found = self._bucket.get(key, options={"head": True})
            except FileNotFoundError:
                return None
            return found.attributes.get(_SUM, "")

    def _listed(self, job_id: str) -> Iterator[Any]:
        for page in self._bucket.list(prefix=f"{self._root}{job_id}/"):  # pyright: ignore[reportUnknownMemberType]
            yield from page

    def _pieces(self, uri: str, options: Any) -> Iterator[bytes]:
        """It is asked for now, so that what is missing is known before the first piece is wanted."""
        key = self._key(uri)
        with self._reached(uri):
            found = self._bucket.get(key, options=options)
        # None for what an older version kept, and for files that people brought.
        if self.agent is not None and found.attributes.get(_AGENT) not in (None, self.agent):
            raise files.missing(uri)
        return self._streamed(uri, found)

    def _streamed(self, uri: str, found: Any) -> Iterator[bytes]:
        with self._reached(uri):
            for piece in found.stream(min_chunk_size=files.PIECE):
                yield bytes(piece)

    def _uri(self, job_id: str, name: str) -> str:
        return f"s3://{self._name}/{quote(f'{self._root}{job_id}/{name}')}"

    def _key(self, uri: str) -> str:
        bucket, _, path = uri.partition("://")[2].partition("/")
        key = unquote(path)
        steps = key.split("/")
        ours = files.kind_of(uri) == "s3" and bucket == self._name and key.startswith(self._root)
        if not ours or any(step in ("", ".", "..") for step in steps):
            raise files.not_ours(uri, self._place)
        return key

    @contextmanager
    def _reached(self, what: str) -> Generator[None]:
        """`NotFound` for a file that is not there, `ServiceUnavailable` for whatever else happens."""
        try:
            yield
        except (BaseError, OSError) as error:
            place, text = self._place, str(error)
            refused = isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError)
            if _NO_BUCKET in text:
                said = f"there is no bucket for {place}: make it, or correct RESULT_STORE"
            elif isinstance(error, FileNotFoundError):
                raise files.missing(what) from error
            elif refused or any(each in text for each in _REFUSALS):
                said = f"{place} refused {what}: check RESULT_S3_KEY_ID, RESULT_S3_SECRET and the rights of that key"
            else:
                # What follows the first line is for those who know the library.
                first = next(iter(text.splitlines()), "").partition("<?xml")[0].strip(" :")[:_LONGEST]
                said = (
                    f"{place} did not take or give {what}: {first or type(error).__name__};"
                    " check RESULT_STORE, RESULT_S3_ENDPOINT and RESULT_S3_REGION"
                )
            raise ServiceUnavailable(said) from error


def _opened(bucket: str, options: ResultOptions) -> Bucket:
    endpoint = options.s3_endpoint
    given: dict[str, Any] = {
        "endpoint": endpoint,
        "region": options.s3_region or ("us-east-1" if endpoint else None),
        "access_key_id": options.s3_key_id,
        "secret_access_key": options.s3_secret,
    }
    return Bucket(
        bucket,
        **{name: value for name, value in given.items() if value is not None},
        client_options={
            "allow_http": endpoint is not None and endpoint.startswith("http://"),
            "connect_timeout": _CONNECT,
            "read_timeout": _SILENCE,
            "timeout": _WHOLE,
        },
        retry_config={"max_retries": 3, "retry_timeout": _PATIENCE},
    )
