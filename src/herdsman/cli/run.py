"""`herdsman run` and `herdsman logs`: a job followed live, and for ComfyUI a workflow filled in and its files saved."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from herdsman.cli import jobs
from herdsman.cli.connect import connect, resolve_job
from herdsman.cli.errors import needed
from herdsman.cli.output import Output, OutputOption, echo, print_json
from herdsman.client import Client, calls
from herdsman.errors import HerdsmanError, InvalidRequest, Unreachable
from herdsman.jobs.wire import ResultOut
from herdsman.ports import ResultStore, SystemClock
from herdsman.settings import load_settings
from herdsman.settings.options import result_options
from herdsman.states import JOB, JobStatus
from herdsman.text import printable

POLL = timedelta(milliseconds=200)
HINT_AFTER = timedelta(seconds=10)
FAILED, INTERRUPTED, CANCELLED = 1, 130, 7
COMFYUI = "comfyui"
REFERENCES = ("file://", "http://", "https://", "s3://")
PIECE = 1 << 20
UNNAMED = "output"
LONGEST_NAME = 200
"""Bytes; file systems take 255, and ours may get a prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowOptions:
    """Options that only jobs for ComfyUI understand."""

    workflow: Annotated[
        str | None, typer.Argument(metavar="WORKFLOW", help="For comfyui: a workflow file in API format.")
    ] = None
    values: Annotated[
        list[str] | None, typer.Option("--set", help="For comfyui: a node input, as NODE.NAME=VALUE; may be repeated.")
    ] = None
    files: Annotated[
        list[str] | None,
        typer.Option("--file", help="For comfyui: a file for a node, as NODE.NAME=PATH; may be repeated."),
    ] = None
    save_to: Annotated[
        Path | None, typer.Option(metavar="DIRECTORY", help="For comfyui: where to save its files; here by default.")
    ] = None

    @property
    def given(self) -> bool:
        return bool(self.workflow or self.values or self.files or self.save_to)


def run(
    type: jobs.Type,  # noqa: A002  (the users' word)
    workflow: WorkflowOptions,
    options: jobs.JobOptions,
    payload: Annotated[str, typer.Option(help="The input as JSON; @FILE reads a file, @- standard input.")] = "{}",
    output: OutputOption = Output.TABLE,
) -> None:
    new = options.job(type=type, payload=payload_of(type, jobs.parse(payload), workflow))
    client = connect()
    submitted = client.send(calls.submit(new))
    try:
        result = _follow(client, submitted.job_id, quiet=output is Output.JSON)
    except KeyboardInterrupt:
        named = submitted.job_id
        echo(f"{named} keeps running; see herdsman job {named}, or stop it with herdsman cancel {named}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    saved = _save_result(client, result, workflow)
    done = result.status == JobStatus.DONE
    if output is Output.JSON:
        document = result.model_dump(mode="json")
        for made in document["result"]["outputs"] if saved else ():
            if isinstance(made, dict) and made.get("uri") in saved:  # pyright: ignore[reportUnknownMemberType]
                made["path"] = str(saved[made["uri"]])
        print_json(document)
    elif saved:
        for path in saved.values():
            echo(str(path))
        if values := cast("dict[str, Any]", result.result).get("values"):
            echo(json.dumps(values, indent=2, ensure_ascii=False))
    elif done:
        echo(json.dumps(result.result, indent=2, ensure_ascii=False))
    else:
        reason = f" ({result.failure_class}): {result.last_error}" if result.last_error else ""
        echo(f"{result.job_id} is {result.status}{reason}", err=True)
    raise typer.Exit(0 if done else CANCELLED if result.status == JobStatus.CANCELLED else FAILED)


def logs(
    job_id: jobs.JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the job has ended.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    client = connect()
    job_id, since = resolve_job(client, job_id), None
    while True:
        page = client.send(calls.logs(job_id, since))
        since = page.next
        for piece in page.pieces:
            echo(piece.model_dump_json() if output is Output.JSON else "\n".join(piece.lines))
        if page.ended or not (follow or page.pieces):
            return
        if not page.pieces:
            SystemClock().sleep(POLL)


def _follow(client: Client, job_id: str, *, quiet: bool) -> ResultOut:
    """Prints its log and its progress until it has ended."""
    console = Console(stderr=True, quiet=quiet)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(printable(job_id), total=1.0, note="")
        since: str | None = None
        unclaimed, hinted = timedelta(), False
        while True:
            job = client.send(calls.job(job_id))  # before its log, so that its last lines are not missed
            # A job that no worker claims may wait for ever: say so, once.
            unclaimed = unclaimed + POLL if job.claimed_at is None else timedelta()
            if unclaimed > HINT_AFTER and not hinted:
                hinted = True
                hint = f"{job_id} is still {job.status}; to see why: herdsman why job {job_id}"
                console.print(printable(hint), markup=False, soft_wrap=True)
            page = client.send(calls.logs(job_id, since))
            since = page.next
            for line in (line for piece in page.pieces for line in piece.lines):
                console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
            where = f"on {job.worker_id}" if job.worker_id else f"{job.status}: {job.reason}"
            done = 1.0 if job.status == JobStatus.DONE else job.progress or 0.0
            bar.update(task, completed=done, note=printable(job.progress_note or where))
            if job.status in JOB.terminal and not page.pieces:
                break
            if not page.pieces:
                SystemClock().sleep(POLL)
    result = client.send(calls.result(job_id))
    assert result is not None, "the job has ended"
    return result


def payload_of(job_type: str, given: object, options: WorkflowOptions) -> object:
    """The payload to submit: `given` as it is, unless an option of ComfyUI was used."""
    if not options.given:
        return given
    if job_type != COMFYUI:
        raise InvalidRequest(
            f"a workflow, --set, --file and --save-to are for jobs of type {COMFYUI}, and this one is of type"
            f" {job_type!r}: give its input with --payload"
        )
    if options.workflow and given != {}:
        raise InvalidRequest(f"the workflow {options.workflow!r} and --payload were both given: leave one out")
    check_directory(options.save_to or Path())
    payload = _document(given, options.workflow)
    values = dict(_pair("--set", each) for each in options.values or ())
    files = dict(_pair("--file", each) for each in options.files or ())
    payload = _with(payload, "set", {path: _value(text) for path, text in values.items()})
    # Checked before anything is copied, with the paths of local files in the place of their references: a path that
    # no node has is reported now, not by the worker. A machine that only submits may lack what connectors use.
    with needed("run comfyui", "herdsman[worker]"):
        from herdsman.connectors.comfyui.workflow import read_order  # noqa: PLC0415
    read_order(_with(payload, "files", {path: _reference(path, text) for path, text in files.items()}))
    if not files:
        return payload
    from herdsman.results import open_store  # noqa: PLC0415  (may load much, and few commands need it)

    # Workers find local files in the store; the job has only the reference.
    store = open_store(result_options(load_settings()))
    kept = {path: text if text.startswith(REFERENCES) else _put(store, Path(text)) for path, text in files.items()}
    return _with(payload, "files", kept)


def _put(store: ResultStore, file: Path) -> str:
    """Under its own digest: another file of this name must not take its place before the worker has read it."""
    try:
        digest = _digest(file)
        with file.open("rb") as opened:
            pieces = iter(partial(opened.read, PIECE), b"")
            return store.put(f"inputs-{digest[:32]}", file.name, pieces).uri
    except OSError as error:
        raise InvalidRequest(f"--file {str(file)!r} cannot be read: {error.strerror}") from error


def _document(given: object, workflow: str | None) -> dict[str, object]:
    """A whole payload, or a workflow alone, which becomes one."""
    try:
        found = given if workflow is None else json.loads(Path(workflow).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"the workflow {workflow!r} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"{workflow!r} is not a workflow: {error}; export one from ComfyUI in API format"
        ) from error
    if not isinstance(found, dict):
        raise InvalidRequest(f"{workflow or '--payload'} holds no workflow: it must be a JSON object")
    payload = cast("dict[str, object]", found)
    whole = isinstance(payload.get("workflow"), dict) and "class_type" not in cast(
        "dict[str, object]", payload["workflow"]
    )
    return payload if whole else {"workflow": payload}


def _pair(option: str, text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise InvalidRequest(f"{option} is {text!r}: write {option} NODE.NAME=VALUE, as in {option} 6.text=dog")
    return path, value


def _value(text: str) -> object:
    """JSON where it is valid JSON, which NaN and Infinity are not; else the text itself."""
    try:
        found = json.loads(text)
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return found


def _with(payload: Mapping[str, object], key: str, more: Mapping[str, object]) -> dict[str, object]:
    """What is typed overrides what the file says."""
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


@dataclass(frozen=True, slots=True)
class OutputFile:
    name: str
    uri: str
    sha256: str | None = None


Fetch = Callable[[OutputFile, Path], None]
"""Downloads one file, to exactly that path."""


def outputs_of(result: object) -> list[OutputFile]:
    """In the order of the result; what does not look like a file is skipped."""
    listed = cast("dict[str, Any]", result).get("outputs") if isinstance(result, dict) else None
    found: list[OutputFile] = []
    for one in cast("list[object]", listed) if isinstance(listed, list) else ():
        match one:
            case {"name": str(name), "uri": str(uri), "sha256": str(digest)}:
                found.append(OutputFile(name, uri, digest))
            case {"name": str(name), "uri": str(uri)}:
                found.append(OutputFile(name, uri))
            case _:
                pass
    return found


def check_directory(directory: Path) -> None:
    """Before anything is rendered that could not be saved."""
    nearest = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise InvalidRequest(f"--save-to is {str(directory)!r}, but {nearest} is not a directory")


def _save_result(client: Client, result: ResultOut, options: WorkflowOptions) -> dict[str, Path]:
    """Where each file of a finished job was saved, by its reference."""
    outputs = outputs_of(result.result)
    if not options.given or result.status != JobStatus.DONE or not outputs:
        return {}

    def fetch(output: OutputFile, to: Path) -> None:
        client.download(result.job_id, output.name, to)

    try:
        paths = save(outputs, result.job_id, options.save_to or Path(), fetch)
    except HerdsmanError:
        echo(
            f"{result.job_id} is done; to save its files again, run the same command with --job-id {result.job_id}",
            err=True,
        )
        raise
    return {output.uri: path for output, path in zip(outputs, paths, strict=True)}


def save(outputs: Sequence[OutputFile], job_id: str, directory: Path, fetch: Fetch) -> list[Path]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".herdsman-", dir=directory) as temporary:
            return [_saved(each, job_id, directory, Path(temporary), fetch) for each in outputs]
    except OSError as error:
        raise InvalidRequest(f"--save-to is {str(directory)!r}: {error.strerror}") from error


def _saved(output: OutputFile, job_id: str, directory: Path, temporary: Path, fetch: Fetch) -> Path:
    name, fetched = harmless(output.name), temporary / "file"
    fetch(output, fetched)
    digest = _digest(fetched)
    if output.sha256 not in (None, digest):
        raise Unreachable(f"{name} arrived damaged: its SHA-256 is {digest}, expected {output.sha256}")
    # The end of an id differs more than its beginning, which is the time.
    short, path = harmless(job_id)[-8:], directory / name
    for number in count(1):
        free = not path.exists() and not path.is_symlink()
        # The same bytes may be there already: a job may be saved twice.
        if free or (path.is_file() and not path.is_symlink() and _digest(path) == digest):
            break
        path = directory / (f"{short}-{name}" if number == 1 else f"{short}-{number}-{name}")
    return fetched.replace(path)


def harmless(name: str) -> str:
    """The last part of a name that a service chose, safe for a file system and for a terminal."""
    last = name.replace("\\", "/").rpartition("/")[2]
    kept = "".join(letter for letter in last if letter.isprintable())
    short = kept.encode()[-LONGEST_NAME:].decode(errors="ignore")
    return short.lstrip(".") or UNNAMED


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
