"""What the tests of commands share: somebody at a shell, beside a server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import served
from tests.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with served(Shell(tmp_path)) as shell:
        yield shell
