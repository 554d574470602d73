"""JSONPath (RFC 9535), for the places in answers where an id, a status or a result stands."""

from typing import Any, cast

import jsonpath


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
            raise ValueError(f"{text!r} is more than one JSONPath; write one")  # noqa: TRY004  told as the others
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
