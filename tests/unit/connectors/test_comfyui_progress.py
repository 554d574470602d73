"""From messages to how far a job is."""

from herdsman.connectors.comfyui.socket import Message
from herdsman.connectors.comfyui.watch import Progress, heard
from herdsman.jobs.protocol import Ended, Working
from tests.support.comfyui_workflows import render

WORKFLOW = {node: render()[node] for node in ("3", "4", "5", "6", "9")}


def _after(*messages: Message) -> Progress:
    progress = Progress(workflow=WORKFLOW)
    for message in messages:
        progress.hear(message)
    return progress


def _cached(*nodes: str) -> Message:
    return Message("execution_cached", {"nodes": list(nodes)})


def _executing(node: str | None) -> Message:
    return Message("executing", {"node": node})


def _step(node: str, value: int, most: int) -> Message:
    return Message("progress", {"node": node, "value": value, "max": most})


def _state(**nodes: tuple[str, float, float]) -> Message:
    told = {node[1:]: {"state": state, "value": value, "max": most} for node, (state, value, most) in nodes.items()}
    return Message("progress_state", {"nodes": told})


def test_five_of_twenty_steps_are_a_quarter_of_the_node() -> None:
    progress = _after(_executing("3"), _step("3", 5, 20))
    assert progress.node_done() == 0.25
    assert progress.working().note == "node 3 KSampler 5/20 (25%)"


def test_the_whole_is_counted_in_nodes_that_have_to_run() -> None:
    progress = _after(_cached("4", "5", "6"), _executing("3"), _step("3", 5, 20))
    assert progress.working() == Working(done=0.125, note="node 3 KSampler 5/20 (25%)", position=0)
    assert _after(_executing("3"), _step("3", 5, 20)).done == 0.05


def test_a_node_is_through_when_the_next_one_starts() -> None:
    progress = _after(_cached("4", "5", "6"), _executing("3"), _step("3", 20, 20), _executing("9"))
    assert progress.done == 0.5
    assert progress.working().note == "node 9 SaveImage"


def test_who_comes_late_learns_from_the_state_what_is_through() -> None:
    progress = _after(_state(n4=("finished", 1, 1), n6=("finished", 1, 1), n3=("running", 10, 20)))
    assert progress.done == 0.5
    assert progress.current == "3"


def test_it_never_goes_back() -> None:
    progress = _after(_executing("3"), _step("3", 20, 20), _step("3", 1, 20))
    assert progress.done == 0.2


def test_a_node_made_by_another_is_shown_as_that_one() -> None:
    progress = _after(_executing("3.0.0.1"), _step("3.0.0.1", 1, 2))
    assert progress.done == 0.1
    assert progress.working().note == "node 3.0.0.1 KSampler 1/2 (50%)"


def test_everything_cached_is_everything_done() -> None:
    assert _after(_cached(*WORKFLOW)).done == 1.0


def test_odd_numbers_do_no_harm() -> None:
    for odd in ({"value": "x", "max": 0}, {"value": None}, {"value": -5, "max": 10}, {"value": 9, "max": 3}):
        progress = _after(_executing("3"), Message("progress", {"node": "3", **odd}))
        assert 0 <= (progress.done or 0) <= 1


def test_the_end_is_heard_in_each_of_its_words() -> None:
    progress = Progress(workflow=WORKFLOW)
    for kind in ("execution_success", "execution_error", "execution_interrupted"):
        assert heard(Message(kind, {}), progress) == Ended()
    assert heard(_executing(None), progress) == Ended()
    assert isinstance(heard(_executing("3"), progress), Working)
