"""What the tests of commands share: somebody at a shell, beside a server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_server import served
from tests.support.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with served(Shell(tmp_path)) as shell:
        yield shell
