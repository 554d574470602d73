"""Which jobs go to which service: a variable for ComfyUI, a file for the rest."""

from pathlib import Path

import pytest

from herdsman.errors import InvalidSettings
from herdsman.settings import load_settings
from herdsman.settings.options import services_of

NOWHERE = Path("nowhere")


def services(**given: str) -> dict[str, dict[str, object]]:
    return services_of(load_settings(given, NOWHERE))


def test_without_either_there_is_none() -> None:
    assert services() == {}


def test_the_variable_gives_jobs_of_type_comfyui_to_it() -> None:
    found = services(COMFYUI_URL="http://127.0.0.1:8188")
    assert found == {"comfyui": {"connector": "comfyui", "url": "http://127.0.0.1:8188"}}


def test_the_file_has_a_table_for_each_type_and_goes_before_the_variable(tmp_path: Path) -> None:
    file = tmp_path / "services.toml"
    file.write_text('[comfyui]\nconnector = "comfyui"\nurl = "http://b"\n[upscale]\nconnector = "http"\n')
    found = services(COMFYUI_URL="http://a", WORKER_CONNECTORS_FILE=str(file))
    assert (found["comfyui"]["url"], found["upscale"]) == ("http://b", {"connector": "http"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[upscale", "cannot be read"),
        ("[upscale]\nurl = 'x'", "'upscale' names no connector"),
        ("upscale = 1", "'upscale' names no connector"),
        ("[upscale]\nconnector = 7", "names no connector"),
    ],
)
def test_a_file_that_says_nothing_usable_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "services.toml"
    file.write_text(text)
    with pytest.raises(InvalidSettings, match=said):
        services(WORKER_CONNECTORS_FILE=str(file))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidSettings, match=r"WORKER_CONNECTORS_FILE /nowhere/x\.toml cannot be read"):
        services(WORKER_CONNECTORS_FILE="/nowhere/x.toml")
