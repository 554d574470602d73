"""The tour of the README: its order, and the minute in which a newcomer sees the first job done."""

import re
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from herdsman.providers.local.provider import count_gpus
from tests.docs.pages import ROOT, page
from tests.support.shell import Shell
from tests.support.up_command import until, up

README = page("README.md")
PROMISE_S = 10
# The promise is for a machine with nothing else to do, and tests seldom have one.
LIMIT_S = 4 * PROMISE_S
TOUR = (
    "make run",
    "herdsman submit demo --count 20",
    "herdsman top",
    "herdsman chaos kill-worker",
    "herdsman events --follow --job",
    "herdsman why",
)


def test_the_tour_has_its_order() -> None:
    """That each of them does what the page says is seen where all examples are run."""
    typed = "".join(block.text for block in README.blocks() if block.language == "bash")
    places = [typed.find(command) for command in TOUR]
    assert -1 not in places, f"not on the page: {[TOUR[index] for index, at in enumerate(places) if at < 0]}"
    assert places == sorted(places)
    left_out = [block.text for block in README.blocks() if block.left_out is not None]
    assert left_out == ["make test\n"]


def test_what_it_says_of_itself_is_three_sentences() -> None:
    first = README.text.partition("\n\n")[2].partition("\n\n")[0]
    assert len(re.findall(r"\.(?:\s|$)", first)) == 3


def test_pictures_are_real() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+\.png)\)", README.text)
    assert len(shown) >= 2
    for name in shown:
        assert (ROOT / name).read_bytes().startswith(b"\x89PNG"), name


@pytest.mark.timeout(300)
def test_the_first_job_is_done_within_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(tmp_path)
    begun = time.monotonic()
    with up(shell, load=True) as greeting:
        job = shell.said("submit", "demo").strip()
        until(lambda: shell.json("job", job)["status"] == "done")
        took = time.monotonic() - begun
        seen = opened(said(greeting, "page"))
    with capsys.disabled():
        print(f"\nfrom the end of the set-up to the first job that is done: {took:.1f} s")
    assert took < LIMIT_S
    assert "<title>Herdsman" in seen
    if count_gpus() == 0:
        assert said(greeting, "gpus").startswith("no GPU found: simulating 2")


def said(greeting: list[str], what: str) -> str:
    return next(line.split(maxsplit=1)[1].strip() for line in greeting if line.startswith(f"{what} "))


def opened(link: str) -> str:
    """As a browser asks for it, without what stands behind the `#`."""
    with urlopen(Request(link.partition("#")[0], headers={"Accept": "text/html"}), timeout=30) as answer:
        return answer.read().decode()
