"""Whether a page shows what was printed, and which id there stands for which one here."""

import re
from collections.abc import Iterator

OTHER_LINES = "..."
_WORKER = re.compile(r"\bgpu-\d+-[0-9a-f-]{36}\b")
_ID = re.compile(r"\b[0-9a-f]{32,64}\b|\b[0-9a-f]{16}\b")
_MASKS = (  # the longest first: parts of them look like others
    (re.compile(r"\bhm_[a-z]+_[0-9a-f]+_[\w-]+\b"), "TOKEN"),
    (re.compile(r"(?<= )/\S+/admin-token\b"), "FILE"),
    (re.compile(r"(?<!\S)\.venv/bin/herdsman\b"), "herdsman"),
    (re.compile(r"^gpus .*"), "gpus NAMES"),
    (_WORKER, "WORKER"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?"), "TIME"),
    (re.compile(r"^\d+ \d\d:\d\d:\d\d\b"), "EVENT"),
    (_ID, "ID"),
    (re.compile(r"\b\d{12,}\b"), "NUMBER"),
    (re.compile(r"\bprocess \d+\b"), "process NUMBER"),
    (re.compile(r"\b\d+[smhd]\b|(?<=ready after )\d+ s\b"), "AGE"),
    (re.compile(r"\bSQLite \d+\.\d+(\.\d+)?"), "SQLite VERSION"),
    (re.compile(r"\bsqlite:///\S+"), "URL"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\bschema \d{4}\b"), "schema REVISION"),
)


def matches(shown: str, printed: str) -> bool:
    """Whether they are the same but for ids, times, versions and places; a line of `...` stands for any lines."""
    return _matched(shown, printed) is not None


def same_ids(shown: str, printed: str) -> dict[str, str]:
    """The ids of jobs and workers on the page, each with the one that was printed in its place.

    Wherever the page goes on with such an id, its reader types the one of their own screen."""
    found = _matched(shown, printed)
    assert found is not None
    whole, here = found.string, _lines(printed)
    told = [line for line in _lines(shown) if line != OTHER_LINES]
    lines = (here[whole.count("\n", 0, found.start(group))] for group in range(1, len(told) + 1))
    pairs = (pair for line, other in zip(told, lines, strict=True) for pair in _pairs(line, other))
    return dict(pairs)


def _pairs(shown: str, printed: str) -> Iterator[tuple[str, str]]:
    for kind in (_WORKER, _ID):
        yield from zip(kind.findall(shown), kind.findall(printed), strict=True)


def _matched(shown: str, printed: str) -> re.Match[str] | None:
    lines = [_masked(line) for line in _lines(shown)]
    pattern = "".join(r"(?:.*\n)*?" if line == OTHER_LINES else f"({re.escape(line)}\n)" for line in lines)
    return re.fullmatch(pattern, "".join(f"{_masked(line)}\n" for line in _lines(printed)))


def _lines(text: str) -> list[str]:
    """With single spaces."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def _masked(line: str) -> str:
    for mask, word in _MASKS:
        line = mask.sub(word, line)
    return line
