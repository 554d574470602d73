"""Who asks for what: the faults that strike any request, the way to the right function, the ledger."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from herdsman.testing.comfyui import file_routes, job_routes, machine_routes
from herdsman.testing.comfyui.faults import Fault, Setting
from herdsman.testing.comfyui.ledger import Asked
from herdsman.testing.comfyui.life import Life
from herdsman.testing.comfyui.prompt_route import post_prompt
from herdsman.testing.comfyui.replies import (
    Answer,
    NoReply,
    Refused,
    Reply,
    Request,
    Upgrade,
    empty,
    html,
    server_error,
    words,
)

Route = Callable[[Life, Request], Answer]
ROUTES: Mapping[tuple[str, str], Route] = {
    ("POST", "/prompt"): post_prompt,
    ("GET", "/prompt"): job_routes.get_load,
    ("GET", "/queue"): job_routes.get_queue,
    ("POST", "/queue"): job_routes.post_queue,
    ("GET", "/history"): job_routes.get_history,
    ("POST", "/history"): job_routes.post_history,
    ("POST", "/interrupt"): job_routes.post_interrupt,
    ("POST", "/free"): job_routes.post_free,
    ("POST", "/upload/image"): file_routes.post_upload,
    ("GET", "/view"): file_routes.get_view,
    ("GET", "/system_stats"): machine_routes.get_system_stats,
    ("GET", "/features"): machine_routes.get_features,
    ("GET", "/object_info"): machine_routes.get_object_info,
    ("GET", "/models"): machine_routes.get_models,
}
BELOW: Mapping[tuple[str, str], Route] = {
    ("GET", "/history/"): job_routes.get_history_of,
    ("GET", "/object_info/"): machine_routes.get_object_info,
    ("GET", "/models/"): machine_routes.get_models,
}
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def answer(life: Life, request: Request) -> Answer:
    """Never an exception for what somebody sends."""
    asked = Asked(method=request.method, path=request.path, query=dict(request.query))
    life.setup.ledger.note_request(asked)
    try:
        given = _struck(life, request) or _answer(life, request)
    except Refused as refused:
        given = refused.reply
    except (AttributeError, KeyError, TypeError, ValueError):
        # As there: a body with something odd in it ends in the arms of the server.
        given = server_error()
    asked.status = given.status if isinstance(given, Reply) else None
    return given


def _struck(life: Life, request: Request) -> Answer | None:
    """The answer of a fault that strikes before anything is done."""
    where = _names(request)
    slow = life.setup.faults.strikes(Fault.SLOW_HTTP, at=where)
    if slow is not None and life.dead.wait(slow.number("seconds", 10) / life.setup.speed):
        return NoReply()
    for fault, answering in _ANSWERS.items():
        setting = life.setup.faults.strikes(fault, at=where)
        if setting is not None:
            return answering(setting)
    return None


_ANSWERS: Mapping[Fault, Callable[[Setting], Reply]] = {
    Fault.UNAUTHORIZED: lambda _: words(401, "401: Unauthorized"),
    Fault.TOO_MANY: lambda setting: words(
        429, "429: Too Many Requests", {"Retry-After": str(int(setting.number("retry_after", 1)))}
    ),
    Fault.HTML: lambda setting: html(int(setting.number("status", 200))),
    Fault.SERVER_ERROR: lambda _: server_error(),
}


def _names(request: Request) -> set[str]:
    """`/history/abc` is also `/history`, and both may be written with the method before them, or below `/api`."""
    first = "/" + request.route.split("/")[1]
    routes = {request.path, request.route, first}
    return routes | {f"{request.method} {each}" for each in routes} | {first.removeprefix("/")}


def _answer(life: Life, request: Request) -> Answer:
    if _from_elsewhere(request):
        return empty(403)
    if request.body is None:
        return words(413, "Maximum request body size exceeded")
    if request.method == "GET" and request.route == "/ws":
        return _upgrade(life, request)
    if request.path.startswith("/api/jobs"):
        return _about_jobs(life, request)
    found = ROUTES.get((request.method, request.route))
    if found is None:
        below = (BELOW[way] for way in BELOW if way[0] == request.method and request.route.startswith(way[1]))
        found = next(below, None)
    return words(404, "404: Not Found") if found is None else found(life, request)


def _about_jobs(life: Life, request: Request) -> Answer:
    match request.method, request.route.split("/")[2:]:
        case "GET", [] if life.setup.has_jobs:
            return job_routes.get_jobs(life, request)
        case "GET", [_] if life.setup.has_jobs:
            return job_routes.get_job(life, request)
        case "POST", [_, "cancel"] if life.setup.cancels_jobs:
            return job_routes.post_cancel(life, request)
        case _:
            return words(404, "404: Not Found")


def _upgrade(life: Life, request: Request) -> Answer:
    if request.headers.get("upgrade", "").lower() != "websocket":
        return words(400, 'No WebSocket UPGRADE hdr: None\n Can "Upgrade" only to "WebSocket".')
    return Upgrade(request.query.get("clientId") or life.setup.new_id().replace("-", ""))


def _from_elsewhere(request: Request) -> bool:
    """A page of another site must not use the service of a person's own machine."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if not origin or urlsplit(f"//{host}").hostname not in LOOPBACK:
        return False
    return urlsplit(origin).netloc.lower() != host.lower()
