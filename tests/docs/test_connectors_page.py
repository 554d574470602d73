"""The examples of the page on connectors that nobody types are right all the same."""

import re
import tomllib
from typing import Any

from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.workflow import KEYS
from herdsman.connectors.registry import Around, find, installed
from herdsman.jobs.model import FailureClass
from herdsman.ports import SystemClock
from herdsman.settings.server_settings import ConnectorSettings
from tests.docs.pages import page, table
from tests.support.memory_results import MemoryResults

CONNECTORS = page("docs/connectors.md")


def test_the_file_for_a_service_over_http_is_one_that_it_takes() -> None:
    (options,) = (each for each in _tables() if each["connector"] == "http")
    assert options.pop("connector") == "http"
    opened = find("http")(options, Around(clock=SystemClock(), results=MemoryResults()))
    assert not opened.capabilities.chooses_id
    assert opened.capabilities.recovers
    assert opened.capabilities.cancels
    opened.close()


def test_the_connectors_are_those_that_are_installed() -> None:
    top = CONNECTORS.section("Connectors: jobs on ComfyUI and other services")
    assert {row[0] for row in table(top)} == set(installed())


def test_the_options_of_comfyui_are_all_explained() -> None:
    told = _words(CONNECTORS.section("More services in one file"))
    assert told == set(ComfyUIOptions.model_fields)


def test_the_keys_of_a_payload_are_all_explained() -> None:
    assert [row[0] for row in table(CONNECTORS.section("Run a workflow"))] == list(KEYS)


def test_the_settings_of_connectors_are_all_explained() -> None:
    told = _words(CONNECTORS.section("Settings"))
    assert {name.upper() for name in ConnectorSettings.model_fields} <= told


def test_failures_have_the_classes_of_the_code() -> None:
    """Each word in code marks in the last column is a class, or the reason for a result that was recovered."""
    rows = [line for line in CONNECTORS.section("When something goes wrong").splitlines() if line.startswith("|")]
    words = {word for row in rows for word in re.findall(r"`(\w+)`", row.split("|")[3])}
    assert words - {"recovered"} == set(FailureClass) - {FailureClass.WORKER_LOST}


def _tables() -> list[dict[str, Any]]:
    texts = [block.text for block in CONNECTORS.blocks() if block.language == "toml"]
    found = [each for text in texts for each in tomllib.loads(text).values()]
    return [each for each in found if "connector" in each]


def _words(section: str) -> set[str]:
    """The names in the first column, of which one row may have two."""
    return {name.strip().strip("`") for row in table(section) for name in row[0].split(",")}
