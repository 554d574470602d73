"""The files of jobs, on their way from this machine to the workers."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from herdsman.core.errors import InvalidRequest
from herdsman.ports import ResultStore
from herdsman.settings import Settings, load_settings
from herdsman.settings.results import result_options

REFERENCES = ("file://", "http://", "https://", "s3://")
PIECE = 1 << 20


def kept(files: Mapping[str, str]) -> dict[str, object]:
    """Local files are copied to where workers find them; the job holds only the reference."""
    store = _store(load_settings())
    return {
        path: text if text.startswith(REFERENCES) else _put(store, Path(text)) for path, text in files.items()
    }


def _put(store: ResultStore, file: Path) -> str:
    """Under its own digest: another file of this name must not take its place before the worker has read it."""
    digest = sha256()
    for piece in _pieces(file):
        digest.update(piece)
    return store.put(f"inputs-{digest.hexdigest()[:32]}", file.name, _pieces(file)).uri


def _pieces(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as opened:
            while piece := opened.read(PIECE):
                yield piece
    except OSError as error:
        raise InvalidRequest(f"--file {str(file)!r} cannot be read: {error.strerror}") from error


def _store(settings: Settings) -> ResultStore:
    from herdsman.results import open_store  # noqa: PLC0415  (may load much, and few commands need it)

    return open_store(result_options(settings))
