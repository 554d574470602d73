"""Files over HTTP: what goes in, and what comes out."""

import mimetypes
import re
from email.utils import formatdate

from herdsman.testing.comfyui.faults import Fault
from herdsman.testing.comfyui.files import FOLDERS, File, Outside, Place, inside
from herdsman.testing.comfyui.life import Life
from herdsman.testing.comfyui.multipart import parts
from herdsman.testing.comfyui.replies import Refused, Reply, Request, empty, ok, words

RANGE = re.compile(r"bytes=(\d+)-(\d*)")


def post_upload(life: Life, request: Request) -> Reply:
    """The content is not looked at: that is for the node that uses it."""
    form = parts(request.headers.get("content-type", ""), request.body or b"")
    image = form.get("image")
    if image is None or not image.filename:
        return empty(400)
    given = {name: part.content.decode(errors="replace") for name, part in form.items() if name != "image"}
    folder = given.get("type", "input")
    place = Place(image.filename, given.get("subfolder", ""), folder if folder in FOLDERS else "input")
    overwrite = given.get("overwrite", "").lower() in {"true", "1"}
    try:
        taken = life.setup.files.upload(place, image.content, overwrite=overwrite)
    except Outside:
        return empty(400)
    return ok({"name": taken.filename, "subfolder": taken.subfolder, "type": taken.type})


def get_view(life: Life, request: Request) -> Reply:
    place = Place(
        request.query.get("filename", ""),
        request.query.get("subfolder", ""),
        request.query.get("type", "output"),
    )
    if life.setup.faults.strikes(Fault.VIEW_MISSING, at={place.filename}):
        life.setup.files.remove(place)
    file = life.setup.files.find(place)
    if file is None:
        file = _other_spelling(life, place)
    return _part(place, file, request.headers.get("range"))


def _other_spelling(life: Life, place: Place) -> File:
    if place.type not in FOLDERS or ".." in place.filename or place.filename.startswith("/"):
        raise Refused(empty(400))
    try:
        file = life.setup.files.find(inside(place))
    except Outside as error:
        raise Refused(empty(403)) from error
    if file is None:
        raise Refused(words(404, "404: Not Found"))
    return file


def _part(place: Place, file: File, wanted: str | None) -> Reply:
    kind = mimetypes.guess_type(place.filename)[0] or "application/octet-stream"
    headers = {
        "Content-Disposition": f'filename="{_header_safe(place.filename)}"',
        "Last-Modified": formatdate(usegmt=True),
        "Accept-Ranges": "bytes",
    }
    found = RANGE.fullmatch(wanted or "")
    start = int(found[1]) if found else 0
    end = min(int(found[2]) + 1, file.length) if found and found[2] else file.length
    if found and start >= file.length:
        return Reply(status=416, headers={"Content-Range": f"bytes */{file.length}"})
    if found:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.length}"
    return Reply(
        status=206 if found else 200,
        kind=kind,
        headers=headers,
        pieces=file.read(start, end),
        length=max(0, end - start),
    )


def _header_safe(name: str) -> str:
    return name.encode("ascii", "replace").decode().replace('"', "'").replace("\r", "").replace("\n", "")
