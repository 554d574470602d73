"""The parts of a form with files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    filename: str | None
    content: bytes


def parts(content_type: str, body: bytes) -> dict[str, Part]:
    """By name; empty if it is no such form."""
    found = re.search(r'boundary="?([^";]+)"?', content_type)
    if not content_type.startswith("multipart/form-data") or found is None:
        return {}
    return {part.name: part for part in _split(b"--" + found[1].encode(), body)}


def _split(boundary: bytes, body: bytes) -> Iterator[Part]:
    for piece in (b"\r\n" + body).split(b"\r\n" + boundary)[1:]:
        head, gap, content = piece.partition(b"\r\n\r\n")
        disposition = _disposition(head.decode(errors="replace"))
        name = _parameter(disposition, "name")
        if gap and name is not None:
            yield Part(name, _parameter(disposition, "filename"), content)


def _disposition(head: str) -> str:
    lines = (line for line in head.split("\r\n") if line.lower().startswith("content-disposition:"))
    return next(lines, "")


def _parameter(disposition: str, name: str) -> str | None:
    found = re.search(rf'; *{name}="((?:[^"\\]|\\.)*)"', disposition)
    return None if found is None else re.sub(r"\\(.)", r"\1", found[1]).replace("%22", '"')
