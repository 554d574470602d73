"""ComfyUI's API as a Starlette app: jobs, files, the machine and the WebSocket, and the faults of any request."""

import contextlib
import json
import mimetypes
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from herdsman.testing.fakes.app_server import ANY_METHOD, AppServer, sleep_unless
from herdsman.testing.fakes.comfyui import execution
from herdsman.testing.fakes.comfyui.faults import Fault, Setting
from herdsman.testing.fakes.comfyui.files import FOLDERS, File, Outside, Place, inside
from herdsman.testing.fakes.comfyui.nodes import MODELS, NODES
from herdsman.testing.fakes.comfyui.prompt_graph import Rejected, check
from herdsman.testing.fakes.comfyui.prompts import Job, Past, RequestRecord
from herdsman.testing.fakes.comfyui.sockets import Socket

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RANGE = re.compile(r"bytes=(\d+)-(\d*)")
SWITCHING_PROTOCOLS = 101
STATS = Path(__file__).with_name("system_stats.json")
"""What an idle one says of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    query: Mapping[str, str]
    path: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    def object(self) -> dict[str, Any]:
        try:
            body = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Refused(_server_error()) from error
        if not isinstance(body, dict):
            raise Refused(_server_error())
        return cast("dict[str, Any]", body)


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The connection ends without a byte, after so many seconds."""

    after_s: float = 0.0


class Refused(Exception):
    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


Handler = Callable[[execution.Life, Call], Response | NoResponse]


class ComfyUiApi:
    def __init__(self, life: Callable[[], execution.Life], *, host: str, port: int) -> None:
        """`life` gives the present run of the service."""
        self._life = life
        routes: list[BaseRoute] = []
        for prefix in ("", "/api"):  # every route is there twice
            for (method, path), handle in _ROUTES.items():
                routes.append(Route(f"{prefix}{path}", self._endpoint(handle), methods=[method]))
            routes.append(WebSocketRoute(f"{prefix}/ws", self._attend))
        routes += [
            Route("/api/jobs", self._endpoint(_get_jobs)),
            Route("/api/jobs/{prompt_id}", self._endpoint(_get_job)),
            Route("/api/jobs/{prompt_id}/cancel", self._endpoint(_cancel_job), methods=["POST"]),
            Route("/{anything:path}", self._endpoint(_not_found), methods=ANY_METHOD),
        ]
        self.server = AppServer(Starlette(routes=routes), name="fake-comfyui", host=host, port=port)

    def _endpoint(self, handle: Handler) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            life = self._life()
            body, length, most = bytearray(), 0, life.setup.most_upload_bytes
            try:
                # Read to its end also where it is too large, or the client would not hear of it.
                async for piece in request.stream():
                    length += len(piece)
                    body += piece if length <= most else b""
            except ClientDisconnect:
                return Response()
            given = await self._respond(life, request, request.method, handle, bytes(body) if length <= most else None)
            if isinstance(given, NoResponse):
                await sleep_unless(life.dead, given.after_s)
                self.server.cut(request)
                return Response()
            return given

        return endpoint

    async def _attend(self, websocket: WebSocket) -> None:
        life = self._life()
        given = await self._respond(
            life, websocket, "GET", lambda _, __: Response(status_code=SWITCHING_PROTOCOLS), b""
        )
        with contextlib.suppress(WebSocketDisconnect):
            if isinstance(given, NoResponse):
                self.server.cut(websocket)
                await websocket.close()
            elif given.status_code != SWITCHING_PROTOCOLS:
                await websocket.send_denial_response(given)
            else:
                await websocket.accept()
                client_id = websocket.query_params.get("clientId") or life.setup.new_id().replace("-", "")
                await life.hub.attend(Socket(websocket), client_id, life.jobs.remaining)

    async def _respond(
        self, life: execution.Life, connection: HTTPConnection, method: str, handle: Handler, body: bytes | None
    ) -> Response | NoResponse:
        """Never an exception for what somebody sends. A request is in the ledger from its arrival."""
        path = str(connection.scope["path"])
        asked = RequestRecord(method=method, path=path, query=dict(connection.query_params))
        life.setup.ledger.requests.append(asked)
        call = Call(query=asked.query, path=connection.path_params, headers=connection.headers, body=body or b"")
        try:
            given = await _struck(life, method, path)
            host, origin = connection.headers.get("host", ""), connection.headers.get("origin")
            local = urlsplit(f"//{host}").hostname in LOOPBACK
            if given is None and origin and local and urlsplit(origin).netloc.lower() != host.lower():
                # A page of another site must not use the service of a person's own machine.
                given = _empty(403)
            if given is None and body is None:
                given = PlainTextResponse("Maximum request body size exceeded", status_code=413)
            if given is None:
                given = await run_in_threadpool(handle, life, call)
        except Refused as refused:
            given = refused.response
        except (AttributeError, KeyError, TypeError, ValueError):
            # As there: a body with something odd in it ends in the error handler of the server.
            given = _server_error()
        if isinstance(given, Response):
            asked.status = given.status_code
        return given


async def _struck(life: execution.Life, method: str, path: str) -> Response | NoResponse | None:
    """The answer of a fault that strikes before anything is done.

    `/history/abc` is also `/history`, and both may be written with the method before them, or below `/api`.
    """
    route = path.removeprefix("/api") if path.startswith("/api/") else path
    first = "/" + route.split("/")[1]
    routes = {path, route, first}
    names = routes | {f"{method} {each}" for each in routes} | {first.removeprefix("/")}
    faults = life.setup.faults
    slow = faults.strikes(Fault.SLOW_HTTP, at=names)
    if slow is not None and await sleep_unless(life.dead, slow.number("seconds", 10) / life.setup.speed):
        return NoResponse()
    for fault, answer in _ANSWERS.items():
        setting = faults.strikes(fault, at=names)
        if setting is not None:
            return answer(setting)
    return None


def _post_prompt(life: execution.Life, call: Call) -> Response | NoResponse:
    fields, faults, version = call.object(), life.setup.faults, life.setup.version
    workflow, extra = fields.get("prompt"), fields.get("extra_data", {})
    try:
        if "prompt" not in fields:
            raise Rejected("no_prompt", "No prompt provided", "No prompt provided")  # noqa: TRY301  as the others
        if not isinstance(workflow, dict) or not isinstance(extra, dict):
            return _server_error()
        if "number" in fields:
            number = float(fields["number"])
        else:
            number = -life.next_number if fields.get("front") else life.next_number
            life.next_number += 1
        ours = "prompt_id" in fields and version >= execution.TAKES_OUR_ID
        # An id that is null becomes the word None, as it does there.
        prompt_id = str(fields["prompt_id"]) if ours else life.setup.new_id()
        if ours and version >= execution.WANTS_CANONICAL_IDS and not UUID.fullmatch(prompt_id):
            raise Rejected("invalid_prompt_id", "prompt_id must be a lower-case UUID", prompt_id)  # noqa: TRY301
        targets = cast("list[str] | None", fields.get("partial_execution_targets"))
        outputs, node_errors = check(cast("dict[str, Any]", workflow), targets, life.setup.files)
    except Rejected as rejected:
        return _json(rejected.body, 400)
    if faults.strikes(Fault.ERROR_BEFORE_QUEUEING, prompt_id=prompt_id):
        return _server_error()
    try:
        # Before it is put into the queue, so that it certainly never runs; nobody can tell the difference.
        life.step({"queued"}, prompt_id)
    except execution.Killed:
        return NoResponse()
    client = {"client_id": fields["client_id"]} if "client_id" in fields else {}
    job = Job(
        number=number,
        prompt_id=prompt_id,
        workflow=cast("dict[str, Any]", workflow),
        extra_data={**cast("dict[str, Any]", extra), **client, "create_time": execution.now_ms()},
        outputs=outputs,
    )
    smooth = life.jobs.put(job)
    life.send_status()
    if not smooth or faults.strikes(Fault.ERROR_AFTER_QUEUEING, prompt_id=prompt_id):
        return _server_error()
    if closed := faults.strikes(Fault.CLOSED_PROMPT, prompt_id=prompt_id):
        return NoResponse(closed.number("seconds", 0) / life.setup.speed)
    return _json({"prompt_id": prompt_id, "number": number, "node_errors": node_errors})


def _post_queue(life: execution.Life, call: Call) -> Response:
    removed = _remove(call, life.jobs.drop)
    life.send_status()
    return removed


def _remove(call: Call, remove: Callable[[str | None], None]) -> Response:
    fields = call.object()
    if fields.get("clear"):
        remove(None)
    for prompt_id in cast("list[str]", fields.get("delete") or []):
        remove(prompt_id)
    return _empty()


def _get_history(life: execution.Life, call: Call) -> Response:
    past = list(life.jobs.past().items())
    offset = int(call.query.get("offset", 0))
    most = int(call.query.get("max_items", len(past)))
    first = offset if "offset" in call.query else max(0, len(past) - most)
    return _json({prompt_id: each.shown() for prompt_id, each in past[first : first + most]})


def _get_history_of(life: execution.Life, call: Call) -> Response:
    """Empty for what waits or runs, as for what nobody knows."""
    prompt_id = call.path["prompt_id"]
    past = life.jobs.past().get(prompt_id)
    return _json({} if past is None else {prompt_id: past.shown()})


def _post_interrupt(life: execution.Life, call: Call) -> Response:
    """Without an id that can be read, and on older servers always: whatever runs."""
    wanted: str | None = None
    with contextlib.suppress(Refused):
        wanted = call.object().get("prompt_id") if life.setup.version >= execution.INTERRUPTS_BY_ID else None
    running = life.jobs.running
    if running is not None and wanted in (None, running.prompt_id):
        _interrupt(life, running)
    return _empty()


def _interrupt(life: execution.Life, running: Job) -> None:
    if not life.setup.faults.strikes(Fault.INTERRUPT_IGNORED, prompt_id=running.prompt_id):
        life.interrupt()


def _post_free(life: execution.Life, call: Call) -> Response:
    if call.object().get("free_memory"):
        life.drop_cache = True  # answered at once, done after the job that runs
    return _empty()


def _get_job(life: execution.Life, call: Call) -> Response:
    if life.setup.version < execution.HAS_JOBS:
        return _not_found(life, call)
    found = life.jobs.find(call.path["prompt_id"])
    if found is None:
        return _json({"error": "Job not found"}, 404)
    return _json(_job_view(life, found, whole=True))


def _get_jobs(life: execution.Life, call: Call) -> Response:
    if life.setup.version < execution.HAS_JOBS:
        return _not_found(life, call)
    running = life.jobs.running
    past = list(life.jobs.past().values())
    everything: list[Job | Past] = [*life.jobs.waiting, *([running] if running else []), *past[::-1]]
    shown = [_job_view(life, each, whole=False) for each in everything]
    wanted = call.query.get("status")
    chosen = [each for each in shown if wanted is None or each["status"] in wanted.split(",")]
    offset, limit = int(call.query.get("offset", 0)), int(call.query.get("limit", len(chosen) or 1))
    page = chosen[offset : offset + limit]
    pages = {"offset": offset, "limit": limit, "total": len(chosen)}
    return _json({"jobs": page, "pagination": {**pages, "has_more": offset + len(page) < len(chosen)}})


def _cancel_job(life: execution.Life, call: Call) -> Response:
    if life.setup.version < execution.CANCELS_JOBS:
        return _not_found(life, call)
    prompt_id = call.path["prompt_id"]
    found = life.jobs.find(prompt_id)
    if found is None:
        return _json({"error": "Job not found"}, 404)
    life.jobs.drop(prompt_id)
    life.send_status()
    if isinstance(found, Job) and found is life.jobs.running:
        _interrupt(life, found)
    return _json({"cancelled": True})


def _job_view(life: execution.Life, found: Job | Past, *, whole: bool) -> dict[str, Any]:
    job = found if isinstance(found, Job) else found.job
    shown: dict[str, Any] = {
        "id": job.prompt_id,
        "status": "in_progress" if found is life.jobs.running else "pending",
        "priority": job.number,
        "create_time": job.extra_data["create_time"],
        "execution_start_time": job.started_ms,
        "execution_end_time": None,
        "outputs_count": 0,
        "workflow_id": None,
    }
    if isinstance(found, Job):
        return shown
    last, data = found.messages[-1]
    files = [item for output in found.outputs.values() for kind in output.values() for item in kind]
    shown["status"] = "completed" if found.status == "success" else "failed"
    shown["execution_end_time"] = found.ended_ms
    shown["outputs_count"] = len(files)
    if last == "execution_interrupted" and life.setup.version >= execution.WANTS_CANONICAL_IDS:
        shown["status"] = "cancelled"
    if last == "execution_error" and found.status == "error":
        shown["execution_error"] = data
    if files:
        shown["preview_output"] = files[0]
    if whole:
        shown["outputs"] = found.outputs
        shown["execution_status"] = found.shown()["status"]
        shown["workflow"] = {"prompt": job.workflow, "extra_data": job.extra_data}
    return shown


def _post_upload(life: execution.Life, call: Call) -> Response:
    """The content is not checked: that is for the node that uses it."""
    parts = dict(_form_parts(call.headers.get("content-type", ""), call.body))
    name, content = parts.pop("image", (None, b""))
    if not name:
        return _empty(400)
    given = {field: value.decode(errors="replace") for field, (_, value) in parts.items()}
    folder = given.get("type", "input")
    place = Place(name, given.get("subfolder", ""), folder if folder in FOLDERS else "input")
    overwrite = given.get("overwrite", "").lower() in {"true", "1"}
    try:
        taken = life.setup.files.upload(place, content, overwrite=overwrite)
    except Outside:
        return _empty(400)
    return _json({"name": taken.filename, "subfolder": taken.subfolder, "type": taken.type})


def _form_parts(content_type: str, body: bytes) -> Iterator[tuple[str, tuple[str | None, bytes]]]:
    """The parts of a form by name, each with its file name and content. Starlette's own need one more package."""
    found = re.search(r'boundary="?([^";]+)"?', content_type)
    if not content_type.startswith("multipart/form-data") or found is None:
        return
    for part in (b"\r\n" + body).split(b"\r\n--" + found[1].encode())[1:]:
        head, gap, content = part.partition(b"\r\n\r\n")
        lines = head.decode(errors="replace").split("\r\n")
        about = next((line for line in lines if line.lower().startswith("content-disposition:")), "")
        named = {
            key: re.sub(r"\\(.)", r"\1", value).replace("%22", '"')
            for key, value in re.findall(r'; *(\w+)="((?:[^"\\]|\\.)*)"', about)
        }
        if gap and "name" in named:
            yield named["name"], (named.get("filename"), content)


def _get_view(life: execution.Life, call: Call) -> Response:
    place = Place(call.query.get("filename", ""), call.query.get("subfolder", ""), call.query.get("type", "output"))
    files = life.setup.files
    if life.setup.faults.strikes(Fault.VIEW_MISSING, at={place.filename}):
        files.remove(place)
    file = files.find(place)
    if file is None:
        if place.type not in FOLDERS or ".." in place.filename or place.filename.startswith("/"):
            return _empty(400)
        try:
            file = files.find(inside(place))
        except Outside:
            return _empty(403)
    if file is None:
        return _not_found(life, call)
    return _part(place, file, call.headers.get("range"))


def _part(place: Place, file: File, wanted: str | None) -> Response:
    name = re.sub(r"[\r\n]", "", place.filename.encode("ascii", "replace").decode().replace('"', "'"))
    headers = {
        "Content-Type": mimetypes.guess_type(place.filename)[0] or "application/octet-stream",
        "Content-Disposition": f'filename="{name}"',
        "Last-Modified": formatdate(usegmt=True),
        "Accept-Ranges": "bytes",
    }
    found = RANGE.fullmatch(wanted or "")
    start = int(found[1]) if found else 0
    end = min(int(found[2]) + 1, file.length) if found and found[2] else file.length
    if found and start >= file.length:
        return Response(status_code=416, headers={"Content-Range": f"bytes */{file.length}"})
    if found:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.length}"
    headers["Content-Length"] = str(max(0, end - start))

    async def pieces() -> AsyncIterator[bytes]:
        for piece in file.read(start, end):
            yield piece

    return StreamingResponse(pieces(), status_code=206 if found else 200, headers=headers)


def _get_system_stats(life: execution.Life, _: Call) -> Response:
    stats = json.loads(STATS.read_text())
    busy = 6 * 1024**3 if life.cache and not life.drop_cache else 0
    stats["system"]["comfyui_version"] = ".".join(map(str, life.setup.version))
    device = stats["devices"][0]
    device["vram_free"], device["torch_vram_total"] = device["vram_total"] - busy, busy
    return _json(stats)


def _get_object_info(life: execution.Life, call: Call) -> Response:
    files = life.setup.files.names("input")
    names = [call.path["name"]] if "name" in call.path else list(NODES)
    return _json({name: NODES[name].described(files) for name in names if name in NODES})


def _get_models(life: execution.Life, call: Call) -> Response:
    if "folder" not in call.path:
        return _json(list(MODELS))
    models = MODELS.get(call.path["folder"])
    return _not_found(life, call) if models is None else _json(list(models))


def _not_found(_: execution.Life, __: Call) -> Response:
    return PlainTextResponse("404: Not Found", status_code=404)


_ROUTES: Mapping[tuple[str, str], Handler] = {
    ("POST", "/prompt"): _post_prompt,
    ("GET", "/prompt"): lambda life, _: _json({"exec_info": {"queue_remaining": life.jobs.remaining}}),
    ("GET", "/queue"): lambda life, _: _json(life.jobs.shown()),
    ("POST", "/queue"): _post_queue,
    ("GET", "/history"): _get_history,
    ("GET", "/history/{prompt_id:path}"): _get_history_of,
    ("POST", "/history"): lambda life, call: _remove(call, life.jobs.forget),
    ("POST", "/interrupt"): _post_interrupt,
    ("POST", "/free"): _post_free,
    ("POST", "/upload/image"): _post_upload,
    ("GET", "/view"): _get_view,
    ("GET", "/system_stats"): _get_system_stats,
    ("GET", "/features"): lambda life, _: _json(life.features()),
    ("GET", "/object_info"): _get_object_info,
    ("GET", "/object_info/{name}"): _get_object_info,
    ("GET", "/models"): _get_models,
    ("GET", "/models/{folder}"): _get_models,
    ("GET", "/ws"): lambda _, __: PlainTextResponse(
        'No WebSocket UPGRADE hdr: None\n Can "Upgrade" only to "WebSocket".', status_code=400
    ),
}


def _json(body: object, status: int = 200) -> Response:
    return Response(json.dumps(body), status_code=status, media_type="application/json; charset=utf-8")


def _empty(status: int = 200) -> Response:
    return Response(status_code=status, media_type="application/octet-stream")


def _server_error() -> Response:
    return PlainTextResponse("500 Internal Server Error\n\nServer got itself in trouble", status_code=500)


_ANSWERS: Mapping[Fault, Callable[[Setting], Response]] = {
    Fault.UNAUTHORIZED: lambda _: PlainTextResponse("401: Unauthorized", status_code=401),
    Fault.TOO_MANY: lambda setting: PlainTextResponse(
        "429: Too Many Requests", status_code=429, headers={"Retry-After": str(int(setting.number("retry_after", 1)))}
    ),
    Fault.HTML: lambda setting: HTMLResponse(
        "<html><head><title>A gateway</title></head><body><h1>Something stands between</h1></body></html>",
        status_code=int(setting.number("status", 200)),
    ),
    Fault.SERVER_ERROR: lambda _: _server_error(),
}
