"""A state machine answers for any table, not only for ours."""

from enum import StrEnum

from hypothesis import given
from hypothesis import strategies as st

from herdsman.states import Machine


class Letter(StrEnum):
    A = "a"
    B = "b"
    C = "c"
    D = "d"


LETTERS = st.sampled_from(Letter)
TABLES = st.fixed_dictionaries({letter: st.frozensets(LETTERS) for letter in Letter})


@given(TABLES, st.frozensets(LETTERS))
def test_reachable_is_closed_and_nothing_more(moves: dict[Letter, frozenset[Letter]], start: frozenset[Letter]) -> None:
    found = a_machine(moves).reachable(start)
    assert start <= found
    assert all(moves[letter] <= found for letter in found)
    assert all(letter in start or any(letter in moves[other] for other in found) for letter in found)


@given(TABLES)
def test_a_state_without_moves_is_an_end(moves: dict[Letter, frozenset[Letter]]) -> None:
    machine = a_machine(moves)
    assert machine.terminal == {letter for letter in Letter if not moves[letter]}
    assert machine.live == set(Letter) - machine.terminal


@given(TABLES, LETTERS, LETTERS)
def test_sources_are_moves_read_backwards(moves: dict[Letter, frozenset[Letter]], here: Letter, there: Letter) -> None:
    machine = a_machine(moves)
    assert machine.allows(here, there) == (there in moves[here]) == (here in machine.sources(there))


@given(TABLES, LETTERS)
def test_sources_come_in_the_order_of_the_table(moves: dict[Letter, frozenset[Letter]], to: Letter) -> None:
    machine = a_machine(moves)
    order = [machine.states.index(state) for state in machine.sources(to)]
    assert order == sorted(order)


def a_machine(moves: dict[Letter, frozenset[Letter]]) -> Machine[Letter]:
    return Machine(kind="letter", table="letters", key="id", initial=frozenset({Letter.A}), moves=moves)
