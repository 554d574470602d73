"""Whatever a page points at is there."""

import re

import pytest

from tests.docs.pages import ROOT, Page, pages

_PATH = re.compile(r"`((?:src|tests|docs|scripts|bench|deploy)/[\w./*-]*)`")
PAGES = pytest.mark.parametrize("each", pages(), ids=lambda each: each.name)


@PAGES
def test_links_lead_somewhere(each: Page) -> None:
    for line, target in each.links():
        if "://" in target:
            continue
        where = f"{each.name}:{line}: {target}"
        name, _, anchor = target.partition("#")
        file = (each.path.parent / name) if name else each.path
        assert file.exists(), f"{where} is not there"
        if anchor:
            assert anchor in Page(file, file.read_text()).anchors(), f"{where}: there is no such heading"


@PAGES
def test_paths_in_code_marks_are_there_or_planned(each: Page) -> None:
    for line, text in each.prose():
        for path in _PATH.findall(text):
            assert "planned" in text or list(ROOT.glob(path.rstrip("/"))), f"{each.name}:{line}: {path}"


def test_every_page_can_be_reached_from_the_front_page() -> None:
    by_path = {each.path: each for each in pages()}
    reached = {ROOT / "README.md"}
    frontier = set(reached)
    while frontier:
        here = frontier.pop()
        links = (target.partition("#")[0] for _, target in by_path[here].links() if "://" not in target)
        found = {(here.parent / link).resolve() for link in links} & by_path.keys()
        frontier |= found - reached
        reached |= found
    assert set(by_path) == reached


def test_decisions_are_numbered_without_gaps_and_have_the_same_parts() -> None:
    decisions = [each for each in pages() if each.path.parent.name == "decisions"]
    numbers = [int(each.path.name[:4]) for each in decisions]
    assert numbers == list(range(1, len(decisions) + 1))
    for each in decisions:
        parts = re.findall(r"^## (.*)$", each.text, re.MULTILINE)
        assert parts == ["Context", "Decision", "Consequences", "Considered and left"], each.name
        assert each.text.startswith(f"# {each.path.name[:4]} "), each.name
