"""An answer of Runpod, read to the end, and what can be learnt from it without trusting it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import httpx

LONGEST_SAID = 400
LONGEST_WAIT = timedelta(days=1)
SHORTEST_SECRET = 8

_TITLE = re.compile(r"<title[^>]*>([^<]{1,200})", re.IGNORECASE)
_EXHAUSTED = re.compile(r";\s*r=0\s*;\s*t=(\d{1,9})")


class Unreadable(Exception):
    """The body is not what the API promises."""


@dataclass(frozen=True, slots=True)
class Answer:
    asked: str
    """The call, as a person would name it: its method and path."""
    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> object:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"it is no JSON but {self.kind}") from error

    @property
    def kind(self) -> str:
        return _one_line(self.headers.get("content-type", "a body of no known kind"), longest=80)

    @property
    def request_id(self) -> str:
        return _one_line(self.headers.get("x-request-id", "unknown"), longest=80)

    def problem(self) -> str | None:
        """What the API itself says is wrong; None when something in between has answered instead."""
        try:
            said = self.json()
        except Unreadable:
            return None
        fields = as_object(said)
        if fields is None or not isinstance(fields.get("detail"), str):
            return None
        errors = fields.get("errors")
        more = [str(each) for each in cast("list[object]", errors)] if isinstance(errors, list) else []
        return "; ".join([str(fields["detail"]), *more])

    def sentence(self, secrets: Sequence[str]) -> str:
        """One line for a person, with nothing in it that must stay secret."""
        said = self.problem() or self._page()
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                said = said.replace(secret, "***")
        return f"runpod answered {self.status} to {self.asked}: {_one_line(said)} (request {self.request_id})"

    def wait(self) -> timedelta | None:
        """How long we are asked to wait: for the longest of the windows that are used up."""
        after = self.headers.get("retry-after", "")
        used_up = _EXHAUSTED.findall(self.headers.get("ratelimit", ""))
        seconds = [int(each) for each in (*used_up, *([after] if _is_number(after) else []))]
        return min(timedelta(seconds=max(seconds)), LONGEST_WAIT) if seconds else None

    def _page(self) -> str:
        title = _TITLE.search(self.body[:4096].decode(errors="replace"))
        return f"{self.kind} and not an answer of the API" + (f", titled {title[1]}" if title else "")


def as_object(value: object) -> Mapping[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _one_line(text: str, longest: int = LONGEST_SAID) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text[: 2 * longest])
    line = " ".join(printable.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
