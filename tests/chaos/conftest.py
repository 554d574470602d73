"""Chaos on one database of each kind: what differs between them, the contract tests show. `make soak` takes all three."""

import pytest

from tests.support.amounts import SOAK
from tests.support.databases import DATABASES, Backend, ServerDatabases


@pytest.fixture(params=DATABASES if SOAK else ["postgresql"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=DATABASES[1:] if SOAK else ["mariadb"])
def server(request: pytest.FixtureRequest) -> ServerDatabases:
    return request.getfixturevalue(request.param)
