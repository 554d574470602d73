"""The names of the client are loaded when they are asked for; each is there."""

import pytest

import herdsman.client


@pytest.mark.parametrize("name", herdsman.client.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(herdsman.client, name).__name__ == name


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match=r"herdsman\.client.*'Nobody'"):
        _ = herdsman.client.Nobody  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
