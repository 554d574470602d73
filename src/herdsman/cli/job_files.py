"""The files of jobs, on their way from this machine to the workers and back."""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from herdsman.cli.saving import Fetch, Output
from herdsman.control.whereabouts import whereabouts
from herdsman.core.errors import InvalidRequest
from herdsman.ports import ResultStore
from herdsman.settings import Settings, load_settings
from herdsman.settings.options import result_options

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


def way_to_files(job_id: str) -> Fetch:
    """From the server that API_URL names; else from the store of this machine."""
    settings = load_settings()
    url = settings.api.api_url
    return _from_store(_store(settings)) if url is None else _from_server(settings, url, job_id)


def _from_store(store: ResultStore) -> Fetch:
    def fetch(output: Output, to: Path) -> None:
        _write(to, store.read(output.uri))

    return fetch


def _from_server(settings: Settings, url: str, job_id: str) -> Fetch:
    from herdsman.client import Client  # noqa: PLC0415  (imports the HTTP client, which takes a while)

    given = settings.api.api_token
    token = whereabouts(settings).token() if given is None else given.get_secret_value()

    def fetch(output: Output, to: Path) -> None:
        with Client(url, token) as client:
            client.download(job_id, output.name, to)

    return fetch


def _write(to: Path, content: Iterable[bytes]) -> None:
    with to.open("wb") as file:
        for piece in content:
            file.write(piece)


def _store(settings: Settings) -> ResultStore:
    from herdsman.results import open_store  # noqa: PLC0415  (may load much, and few commands need it)

    return open_store(result_options(settings))
