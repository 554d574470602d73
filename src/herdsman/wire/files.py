"""Files of a job, as its result tells of them."""

import re
from typing import Any, cast

_SUM = re.compile(r"[0-9a-f]{64}", re.ASCII)


def sha256_of(result: object, name: str) -> str | None:
    """The sum that the result tells for a file; None where it tells none. Handlers may return anything."""
    for output in _outputs(result):
        if output.get("name") == name:
            told = output.get("sha256")
            return told if isinstance(told, str) and _SUM.fullmatch(told) else None
    return None


def _outputs(result: object) -> list[dict[str, Any]]:
    listed = cast("dict[str, Any]", result).get("outputs") if isinstance(result, dict) else None
    if not isinstance(listed, list):
        return []
    return [cast("dict[str, Any]", each) for each in cast("list[Any]", listed) if isinstance(each, dict)]
