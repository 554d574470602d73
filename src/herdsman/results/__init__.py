"""Where the files of jobs are kept: a directory, or an object store."""

from herdsman.errors import InvalidSettings
from herdsman.ports import ResultFiles
from herdsman.results.files import SCHEME
from herdsman.results.local import LocalStore
from herdsman.results.options import ResultOptions

__all__ = ["ResultOptions", "open_store"]

S3 = "s3://"


def open_store(options: ResultOptions) -> ResultFiles:
    """Touches nothing yet: a wrong directory, bucket or key is known with the first file."""
    if options.place.startswith(S3):
        try:
            from herdsman.results.s3 import S3Store  # noqa: PLC0415  (an extra that few need)
        except ModuleNotFoundError as error:
            raise InvalidSettings(
                f"RESULT_STORE is {options.place!r}, and the package {error.name} is missing: install herdsman[s3]"
            ) from error
        return S3Store(options)
    if SCHEME.match(options.place):
        raise InvalidSettings(f"RESULT_STORE is {options.place!r}: it must be a directory or s3://BUCKET/PREFIX")
    return LocalStore(options)
