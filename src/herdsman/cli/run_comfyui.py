"""`herdsman run comfyui workflow.json`: a workflow with values and files set, and its images saved."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeGuard, cast

from herdsman.cli.lazy import needed
from herdsman.cli.output import echo
from herdsman.client import Client
from herdsman.errors import HerdsmanError, InvalidRequest, Unreachable
from herdsman.jobs.wire import ResultOut
from herdsman.ports import ResultStore
from herdsman.settings import load_settings
from herdsman.settings.options import result_options
from herdsman.states import JobState

REFERENCES = ("file://", "http://", "https://", "s3://")
PIECE = 1 << 20


def kept(files: Mapping[str, str]) -> dict[str, object]:
    """Local files are copied to where workers find them; the job holds only the reference."""
    from herdsman.results import open_store  # noqa: PLC0415  (may load much, and few commands need it)

    store = open_store(result_options(load_settings()))
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


UNNAMED = "output"
LONGEST_NAME = 200
"""Bytes; file systems take 255, and ours may get a prefix."""


@dataclass(frozen=True, slots=True)
class Output:
    """One file of a result, as its job tells of it."""

    name: str
    uri: str
    sha256: str | None = None


Fetch = Callable[[Output, Path], None]
"""Brings one file, to exactly that path."""


def outputs_of(result: object) -> list[Output]:
    """In the order of the result; what does not look like a file is passed over."""
    told = cast("dict[str, Any]", result).get("outputs") if isinstance(result, dict) else None
    each = cast("list[object]", told) if isinstance(told, list) else []
    return [_output(one) for one in each if _is_file(one)]


def check_directory(directory: Path) -> None:
    """Before anything is rendered: what cannot be kept need not be made."""
    nearest = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise InvalidRequest(f"--save-to is {str(directory)!r}, but {nearest} is not a directory")


def save(outputs: Sequence[Output], job_id: str, directory: Path, fetch: Fetch) -> list[Path]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".herdsman-", dir=directory) as place:
            return [_saved(each, job_id, directory, Path(place), fetch) for each in outputs]
    except OSError as error:
        raise InvalidRequest(f"--save-to is {str(directory)!r}: {error.strerror}") from error


def _saved(output: Output, job_id: str, directory: Path, place: Path, fetch: Fetch) -> Path:
    name = harmless(output.name)
    brought = place / "file"
    fetch(output, brought)
    digest = _digest(brought)
    if output.sha256 not in (None, digest):
        raise Unreachable(f"{name} arrived damaged: its SHA-256 is {digest}, and {output.sha256} was told")
    chosen = next(path for path in _candidates(directory, name, job_id) if _may_be(path, digest))
    return brought.replace(chosen)


def harmless(name: str) -> str:
    """The last part of a name that a service chose, fit for a file and for a terminal."""
    last = name.replace("\\", "/").rpartition("/")[2]
    kept = "".join(letter for letter in last if letter.isprintable())
    short = kept.encode()[-LONGEST_NAME:].decode(errors="ignore")
    return short.lstrip(".") or UNNAMED


def _candidates(directory: Path, name: str, job_id: str) -> Iterator[Path]:
    yield directory / name
    # The end of an id differs more than its beginning, which is the time.
    short = harmless(job_id)[-8:]
    yield directory / f"{short}-{name}"
    yield from (directory / f"{short}-{number}-{name}" for number in count(2))


def _may_be(path: Path, digest: str) -> bool:
    """Whether nothing is there, or the same bytes: a job may be saved twice."""
    if not path.exists() and not path.is_symlink():
        return True
    return path.is_file() and not path.is_symlink() and _digest(path) == digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_file(told: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(told, dict):
        return False
    one = cast("dict[str, object]", told)
    return isinstance(one.get("name"), str) and isinstance(one.get("uri"), str)


def _output(told: dict[str, Any]) -> Output:
    sha256 = told.get("sha256")
    return Output(told["name"], told["uri"], sha256 if isinstance(sha256, str) else None)


TYPE = "comfyui"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What only jobs for ComfyUI understand."""

    workflow: str | None = None
    values: Sequence[str] = ()
    files: Sequence[str] = ()
    save_to: Path | None = None

    @property
    def anything(self) -> bool:
        return bool(self.workflow or self.values or self.files or self.save_to)


def payload_of(job_type: str, given: object, asked: Asked) -> object:
    """The payload to submit: `given` as it is, unless something was asked that only ComfyUI understands."""
    if not asked.anything:
        return given
    if job_type != TYPE:
        raise InvalidRequest(
            f"a workflow, --set, --file and --save-to are for jobs of type {TYPE}, and this one is of type"
            f" {job_type!r}: give its input with --payload"
        )
    if asked.workflow and given != {}:
        raise InvalidRequest(f"the workflow {asked.workflow!r} and --payload were both given: leave one out")
    check_directory(asked.save_to or Path())
    payload = _document(given, asked.workflow)
    values = dict(_pair("--set", each) for each in asked.values)
    files = dict(_pair("--file", each) for each in asked.files)
    payload = _with(payload, "set", {path: _value(text) for path, text in values.items()})
    # Judged before anything is copied, with the names of local files in the place of their references.
    # A path that no node has is told now, not by the worker.
    with worker_packages():
        from herdsman.connectors.comfyui.workflow import substituted  # noqa: PLC0415
    substituted(_with(payload, "files", {path: _reference(path, text) for path, text in files.items()}))
    return _with(payload, "files", kept(files)) if files else payload


def save_result(client: Client, result: ResultOut, asked: Asked) -> dict[str, Path]:
    """Where each output of a job that is done lies from now on, by its reference."""
    outputs = outputs_of(result.result)
    if not asked.anything or result.status != JobState.DONE or not outputs:
        return {}

    def fetch(output: Output, to: Path) -> None:
        client.download(result.job_id, output.name, to)

    try:
        paths = save(outputs, result.job_id, asked.save_to or Path(), fetch)
    except HerdsmanError:
        echo(
            f"{result.job_id} is done; to save its files again, type the same command with"
            f" --job-id {result.job_id}",
            err=True,
        )
        raise
    return {output.uri: path for output, path in zip(outputs, paths, strict=True)}


def shown(result: ResultOut, saved: Mapping[str, Path]) -> dict[str, Any]:
    """The result as JSON, with the path of each file that was saved."""
    document = result.model_dump(mode="json")
    for output in document["result"]["outputs"] if saved else ():
        if isinstance(output, dict) and output.get("uri") in saved:  # pyright: ignore[reportUnknownMemberType]
            output["path"] = str(saved[output["uri"]])
    return document


def print_saved(result: ResultOut, saved: Mapping[str, Path]) -> None:
    for path in saved.values():
        echo(str(path))
    values: Any = cast("dict[str, Any]", result.result).get("values")
    if values:
        echo(json.dumps(values, indent=2, ensure_ascii=False))


def _document(given: object, workflow: str | None) -> dict[str, object]:
    """A whole payload, or a workflow alone, which is one too."""
    found = given if workflow is None else _read(Path(workflow))
    if not isinstance(found, dict):
        raise InvalidRequest(f"{workflow or '--payload'} holds no workflow: it must be a JSON object")
    payload = cast("dict[str, object]", found)
    whole = isinstance(payload.get("workflow"), dict) and "class_type" not in cast(
        "dict[str, object]", payload["workflow"]
    )
    return payload if whole else {"workflow": payload}


def _read(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"the workflow {str(file)!r} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"{str(file)!r} is no workflow: {error}; export one from ComfyUI in API format"
        ) from error


def _pair(option: str, text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise InvalidRequest(
            f"{option} is {text!r}: write {option} NODE.NAME=VALUE, as in {option} 6.text=dog"
        )
    return path, value


def _value(text: str) -> object:
    """JSON where it is some, else the text itself."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text


def _no_number(word: str) -> object:
    raise ValueError(word)


def _with(payload: Mapping[str, object], key: str, more: Mapping[str, object]) -> dict[str, object]:
    """What is typed stands above what the file says."""
    there = payload.get(key, {})
    if not isinstance(there, dict):
        raise InvalidRequest(f"{key!r} of the payload must be an object of paths and values")
    return {**payload, key: {**there, **more}} if more else dict(payload)


def _reference(path: str, text: str) -> str:
    if text.startswith(REFERENCES):
        return text
    if not Path(text).is_file():
        raise InvalidRequest(f"--file {path}={text}: there is no file {text!r}")
    return Path(text).absolute().as_uri()


def worker_packages() -> AbstractContextManager[None]:
    """Connectors are a worker's part; a machine that only submits may lack what they use."""
    return needed("without the package {} workflows cannot be looked at: install herdsman[worker]")
