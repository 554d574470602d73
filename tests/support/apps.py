"""The app of a server, whose routes are built once for each process with tests: that takes longer than most tests."""

from fastapi import FastAPI

from herdsman.server.app import create_app
from herdsman.server.state import ServerState

_FIRST: list[FastAPI] = []


def an_app(state: ServerState) -> FastAPI:
    """A test that adds routes makes an app of its own: these are shared."""
    if not _FIRST:
        _FIRST.append(create_app(state))
    return create_app(state, like=_FIRST[0])
