"""What a worker says that it has loaded."""

import pytest

from herdsman.errors import InvalidRequest
from herdsman.jobs.protocol import NOTHING, VARIABLES, Load, from_variables, to_variables
from herdsman.jobs.worker_wire import MOST_MODELS
from herdsman.worker.context import Alone, JobContext, Setup
from herdsman.worker.handler_pool import Models
from herdsman.worker.registry import Handler, HandlerSpec, UnusableHandler, prepare

LOAD = Load(revision=3, model="org/base", adapter="org/style", variant="fp8", preload=("vae", "clip"))


def serving(load: Load = LOAD) -> Models:
    models = Models()
    models.serve(load)
    return models


def test_the_models_of_its_pool_are_loaded_once_its_process_is_ready_and_stay_when_it_is_replaced() -> None:
    models = Models()
    assert models.names == ()
    models.serve(LOAD)
    models.hear({"loaded": ["extra"]})
    assert models.names == ("org/base", "vae", "clip", "extra")
    models.forget()
    assert models.names == ("org/base", "vae", "clip")
    models.forget(kept_too=True)
    assert models.names == ()


def test_a_job_leaves_its_model_and_takes_the_room_of_the_one_before() -> None:
    models = serving(Load(revision=0, model="base"))
    models.begin(["first"])
    assert models.names == ("base", "first")
    models.begin([None])
    models.begin(["base"])
    assert models.names == ("base", "first"), "a job that needs nothing new displaces nothing"
    models.begin(["second"])
    assert models.names == ("base", "second")


def test_a_model_of_jobs_that_all_failed_is_not_claimed_to_be_there() -> None:
    models = Models()
    models.begin(["good"])
    models.begin(["good"])
    models.undo()
    assert models.names == ("good",), "it was there before"
    models.begin(["misspelled"])
    models.undo()
    assert models.names == ()


def test_a_handler_knows_better() -> None:
    models = serving(Load(revision=0, model="base"))
    models.begin(["first"])
    models.hear({"loaded": ["first"], "unloaded": ["base"]})
    models.begin(["second"])
    models.undo()
    assert models.names == ("first",)


@pytest.mark.parametrize(
    "word",
    [
        {"loaded": "text"},
        {"loaded": [1, None, ["x"], "", " spaced", "nul\0", "x" * 256, "a,b", "..\\up"]},
        {"loaded": None, "unloaded": 7},
        {"progress": 0.5},
    ],
)
def test_words_that_no_server_would_take_are_not_kept(word: dict[str, object]) -> None:
    models = Models()
    models.hear(word)
    assert models.names == ()


def test_only_so_many_are_told_and_those_of_the_pool_first() -> None:
    """X9"""
    models = serving(Load(revision=1, model="base"))
    for number in range(200):
        models.hear({"loaded": [f"m{number}"]})
    names = models.names
    assert len(names) == MOST_MODELS
    assert (names[0], names[-1]) == ("base", "m199")
    assert len(serving(Load(revision=1, preload=tuple(f"p{n}" for n in range(99)))).names) == MOST_MODELS


@pytest.mark.parametrize("load", [LOAD, NOTHING, Load(revision=1), Load(revision=0, preload=("a",))])
def test_a_load_travels_as_variables(load: Load) -> None:
    told = to_variables(load)
    assert from_variables(told) == load
    assert set(told) <= set(VARIABLES)
    assert all(told.values())


@pytest.mark.parametrize(
    "given",
    [
        {"HERDSMAN_REVISION": "-1"},
        {"HERDSMAN_REVISION": "new"},
        {"HERDSMAN_MODEL": "a b"},
        {"HERDSMAN_ADAPTER": "/x"},
        {"HERDSMAN_PRELOAD": "a,b c"},
    ],
)
def test_a_variable_that_cannot_be_used_is_named(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(given))):
        from_variables(given)


def test_handlers_say_what_they_have_loaded() -> None:
    alone = Alone()
    job = JobContext(type="t", link=alone)
    job.loaded("a", "org/b:1")
    job.unloaded("a")
    setup = Setup(model="m", preload=("p", "m"), link=alone)
    setup.loaded("c")
    assert setup.wanted == ("m", "p")
    assert alone.said == [{"loaded": ["a", "org/b:1"]}, {"unloaded": ["a"]}, {"loaded": ["c"]}]
    for wrong in ("", "a b", "x" * 256):
        with pytest.raises(ValueError, match="model"):
            job.loaded(wrong)


def test_a_setup_that_two_handlers_share_runs_once() -> None:
    ran: list[str | None] = []

    def load(setup: Setup) -> None:
        ran.append(setup.model)

    def fail(_setup: Setup) -> None:
        raise OSError("the weights are gone")

    def a_handler(kind: str, setup: object = load) -> Handler:
        return Handler(spec=HandlerSpec(type=kind), run=print, setup=setup)  # type: ignore[arg-type]

    prepare([a_handler("a"), a_handler("b"), a_handler("c", None)], Setup(model="m"))
    assert ran == ["m"]
    with pytest.raises(UnusableHandler, match=r"fail failed: OSError\('the weights are gone'\)"):
        prepare([a_handler("a", fail)], Setup())
