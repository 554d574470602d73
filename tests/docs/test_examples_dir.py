"""The examples do what their page says, on a herd of their own; and none is left out of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page, page
from tests.docs.running import OUTPUT, RUN, Reader
from tests.docs.test_examples import OTHER

EXAMPLES = ROOT / "examples"
README = "examples/README.md"


class ReaderOfExamples(Reader):
    """One who has the examples in the checkout, and Python where `activate` puts it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        shutil.copytree(EXAMPLES, directory / "checkout" / "examples")
        python = directory / "programs" / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -W error "$@"\n')
        python.chmod(0o755)


@pytest.mark.timeout(300)
def test_every_example_does_what_its_page_says(tmp_path: Path) -> None:
    ReaderOfExamples(tmp_path).follow(page(README))


def test_every_file_has_its_line_on_the_page() -> None:
    files = {each.name for each in EXAMPLES.iterdir() if each.is_file() and each.name != "README.md"}
    linked = {target for _, target in page(README).links()}
    assert linked == files


def test_no_block_is_passed_over() -> None:
    for block in readme().blocks():
        assert block.language in (*RUN, OUTPUT, *OTHER)
        assert block.left_out is None
        assert block.remark is None or block.keeps_running


def test_a_handler_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Its own code, without a herd: a second attempt finds what the first one has saved."""
    program = """
from examples.handler import count
from herdsman import JobContext
from herdsman.worker.context import Alone

saved = Alone(saved={"number": 3, "sum": 6})
assert count(JobContext(type="count", payload={"to": 4, "seconds": 0}, link=saved)) == {"sum": 10, "attempt": 1}
assert saved.saved == {"number": 4, "sum": 10}
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "4 makes 10\n"


def readme() -> Page:
    return page(README)
