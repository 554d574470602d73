"""The name of a machine says whose it is, to the letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import InvalidRequest, InvalidSettings
from herdsman.providers.registry import Naming

LABELS = st.from_regex(r"[a-z0-9]{1,4}(-[a-z0-9]{1,4}){0,3}", fullmatch=True)
OWN_PARTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
NAMINGS = st.builds(Naming, LABELS, LABELS)


@given(NAMINGS, NAMINGS, OWN_PARTS)
def test_a_name_belongs_to_the_deployment_that_made_it_and_to_no_other(
    maker: Naming, other: Naming, own_part: str
) -> None:
    assert maker.owns(maker.name(own_part))
    assert other.owns(maker.name(own_part)) == (other == maker)


@given(NAMINGS, OWN_PARTS, OWN_PARTS)
def test_two_machines_have_two_names(naming: Naming, one: str, other: str) -> None:
    assert (naming.name(one) == naming.name(other)) == (one == other)


@pytest.mark.parametrize(
    "name", ["", "gpu", "gpu-a-w1", "gpu--a", "gpu--a--", "gpu--a-b--w1", "xgpu--a--w1", "GPU--a--w1"]
)
def test_these_are_not_names_of_deployment_a(name: str) -> None:
    assert not Naming("gpu", "a").owns(name)


@pytest.mark.parametrize("label", ["", "-a", "a-", "a--b", "A", "a_b", "ä", "a b", "a\n", "a" * 41])
def test_a_label_that_could_be_misread_is_refused(label: str) -> None:
    with pytest.raises(InvalidSettings, match="deployment id"):
        Naming("gpu", label)
    with pytest.raises(InvalidSettings, match="prefix"):
        Naming(label, "a")


@pytest.mark.parametrize("own_part", ["", "-x", "a b", "a/b", "x" * 200, "a\n"])
def test_an_own_part_that_does_not_travel_well_is_refused(own_part: str) -> None:
    with pytest.raises(InvalidRequest):
        Naming("gpu", "a").name(own_part)
