"""The pages of the project: their fenced blocks, headings and links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)\s*$")
_COMMENT = re.compile(r"^\s*<!-- (?P<said>.*?) -->\s*$")
_HEADING = re.compile(r"^#{1,6} (?P<text>.+?)\s*$")
_TERMINAL = re.compile(r"in a terminal, until `(?P<words>[^`]+)` is shown; `(?P<key>[^`]+)` leaves it")
_INLINE_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    line: int
    """The line of the page on which the text begins, counted from 1."""
    remark: str | None
    """What the HTML comment just above says about it."""

    @property
    def left_out(self) -> str | None:
        """Why it is not run; None when it is."""
        said = (self.remark or "").partition("not run: ")
        return said[2] if said[1] else None

    @property
    def keeps_running(self) -> bool:
        return self.remark == "keeps running"

    @property
    def fills_terminal(self) -> tuple[str, str] | None:
        """For a command that fills a terminal: the words to wait for, and the key that leaves it."""
        said = _TERMINAL.fullmatch(self.remark or "")
        return (said["words"], said["key"]) if said else None


@dataclass(frozen=True, slots=True)
class Page:
    path: Path
    text: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT)) if self.path.is_relative_to(ROOT) else self.path.name

    def blocks(self) -> Iterator[Block]:
        lines = self.text.splitlines()
        opened: tuple[int, re.Match[str]] | None = None
        for index, line in enumerate(lines):
            fence = _FENCE.match(line)
            if fence is None:
                continue
            if opened is None:
                opened = index, fence
                continue
            start, head = opened
            assert not fence["language"], f"{self.name}:{index + 1}: a block begins inside a block"
            body = "".join(text.removeprefix(head["indent"]) + "\n" for text in lines[start + 1 : index])
            yield Block(head["language"], body, start + 2, _remark(lines[:start]))
            opened = None
        assert opened is None, f"{self.name}: a block has no end"

    def prose(self) -> Iterator[tuple[int, str]]:
        """The lines outside of blocks, with their numbers."""
        inside = False
        for number, line in enumerate(self.text.splitlines(), start=1):
            if _FENCE.match(line):
                inside = not inside
            elif not inside:
                yield number, line

    def anchors(self) -> set[str]:
        """The names by which a link may reach a heading."""
        headings = (_HEADING.match(line) for _, line in self.prose())
        return {_slug(heading["text"]) for heading in headings if heading}

    def links(self) -> Iterator[tuple[int, str]]:
        for number, line in self.prose():
            for link in _LINK.finditer(_INLINE_CODE.sub("code", line)):
                yield number, link["target"]

    def section(self, heading: str) -> str:
        """What stands under a heading, down to the next one of any level."""
        lines = self.text.splitlines()
        start = next(i for i, line in enumerate(lines) if _is_heading(line, heading)) + 1
        rest = (i for i, line in enumerate(lines[start:], start) if _HEADING.match(line))
        return "\n".join(lines[start : next(rest, len(lines))])


def pages() -> list[Page]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return [page(str(path.relative_to(ROOT))) for path in sorted(found)]


def page(name: str) -> Page:
    return Page(ROOT / name, (ROOT / name).read_text(encoding="utf-8"))


def table(text: str) -> list[list[str]]:
    """The rows of the first table, without its head; code marks are taken off."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows[2:]]


def _remark(above: list[str]) -> str | None:
    nearest = next((line for line in reversed(above) if line.strip()), "")
    comment = _COMMENT.match(nearest)
    return comment["said"] if comment else None


def _is_heading(line: str, text: str) -> bool:
    heading = _HEADING.match(line)
    return heading is not None and heading["text"].replace("`", "") == text


def _slug(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.replace(" ", "-")
