"""Places in texts and answers: `{payload.prompt}`, `{external_id}` in what is sent (`{{` and `}}` stand for the braces
themselves), and JSONPath (RFC 9535) for where an id, a status or a result stands in an answer.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import jsonpath

from herdsman.errors import ServiceRejected

_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][^{}]*)\}")

JOB = frozenset({"payload", "external_id", "job_id", "type", "model", "adapter", "variant", "attempt"})
"""What is known of a job when it is handed over."""


def places(template: object) -> Iterator[str]:
    """Everything that a template asks for, as `payload.prompt`."""
    if isinstance(template, str):
        yield from (each[1] for each in _PLACE.finditer(template) if each[1])
    elif isinstance(template, Mapping):
        for each in cast("Mapping[str, object]", template).values():
            yield from places(each)
    elif isinstance(template, Sequence):
        for each in cast("Sequence[object]", template):
            yield from places(each)


def check(template: object, known: frozenset[str]) -> None:
    """`ValueError` names a place that nothing could fill."""
    for place in places(template):
        if place.partition(".")[0] not in known or ("." in place and not place.startswith("payload.")):
            names = ", ".join(f"{{{each}}}" for each in sorted(known))
            raise ValueError(f"nothing fills {{{place}}}; known are: {names}")


def fill(template: object, values: Mapping[str, object]) -> object:
    """The same JSON with its places filled. A text that is one place and nothing else keeps the type of its value."""
    if isinstance(template, str):
        alone = _PLACE.fullmatch(template)
        return _look_up(alone[1], values) if alone and alone[1] else fill_text(template, values)
    if isinstance(template, Mapping):
        return {key: fill(each, values) for key, each in cast("Mapping[str, object]", template).items()}
    if isinstance(template, list | tuple):
        return [fill(each, values) for each in cast("Sequence[object]", template)]
    return template


def fill_text(template: str, values: Mapping[str, object]) -> str:
    return _PLACE.sub(lambda found: _part(found, values), template)


def fill_url(template: str, values: Mapping[str, object]) -> str:
    """What is filled in cannot leave its place in the URL, unless it is the whole of it."""
    if (alone := _PLACE.fullmatch(template)) and alone[1]:
        return _plain(alone[1], _look_up(alone[1], values))
    return _PLACE.sub(lambda found: quote(_part(found, values), safe="") if found[1] else found[0][0], template)


def _part(found: re.Match[str], values: Mapping[str, object]) -> str:
    if not found[1]:
        return found[0][0]
    return _plain(found[1], _look_up(found[1], values))


def _plain(place: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ServiceRejected(
        f"{place} is {repr(value)[:100]}, which does not fit into a text; it must be a text or a number"
    )


def _look_up(place: str, values: Mapping[str, object]) -> object:
    name, *rest = place.split(".")
    found: object = values[name]
    for number, part in enumerate(rest, 1):
        try:
            if isinstance(found, list) and part.isdecimal():
                found = cast("list[object]", found)[int(part)]
            else:
                found = cast("Mapping[str, object]", found if isinstance(found, Mapping) else {})[part]
        except LookupError:
            missing = ".".join([name, *rest[:number]])
            raise ServiceRejected(f"the job has no {missing}, which its connector's options ask for") from None
    return found


class JsonPath:
    """A path that was understood. One that can match only once gives a value; another one gives a list."""

    def __init__(self, text: object) -> None:
        if not isinstance(text, str) or not text.startswith("$"):
            raise ValueError(f"{text!r} is no JSONPath; write one such as $.id")
        try:
            path = jsonpath.compile(text)
        except jsonpath.JSONPathError as error:
            raise ValueError(f"{text!r} is no JSONPath: {str(error).splitlines()[0]}") from error
        if not isinstance(path, jsonpath.JSONPath):
            raise ValueError(f"{text!r} is more than one JSONPath; write one")  # noqa: TRY004  caught as the others
        self.text = text
        self._path = path

    def __repr__(self) -> str:
        return f"JsonPath({self.text!r})"

    def all(self, document: object) -> list[object]:
        """Everything that it matches; a list that it matches as a whole counts as its parts."""
        found = [match.obj for match in self._path.finditer(cast("Any", document))]
        if len(found) == 1 and isinstance(found[0], list):
            return cast("list[object]", found[0])
        return found

    def value(self, document: object) -> object:
        """`LookupError` where there is nothing."""
        found = [match.obj for match in self._path.finditer(cast("Any", document))]
        if not self._path.singular_query():
            return found
        if not found:
            raise LookupError(f"there is no {self.text}")
        return found[0]

    def value_or_none(self, document: object) -> object:
        try:
            return self.value(document)
        except LookupError:
            return None
