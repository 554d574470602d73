"""The description of the API: up to date, stable, and the same on every machine."""

from pathlib import Path

from fastapi import FastAPI

from herdsman.access.rules import Role
from scripts.openapi import ACCESS_PAGE, OPENAPI_FILE, openapi_text, with_rights
from tests.api.calling import Client
from tests.api.conftest import Tokens

ROOT = Path(__file__).parents[2]
AGAIN = "run `python -m scripts.openapi` to write it again"


def test_the_description_is_up_to_date(app: FastAPI) -> None:
    assert (ROOT / OPENAPI_FILE).read_text() == openapi_text(app), AGAIN


def test_the_table_of_rights_is_up_to_date() -> None:
    page = (ROOT / ACCESS_PAGE).read_text()
    assert page == with_rights(page), AGAIN


def test_every_operation_has_a_name_of_its_own(app: FastAPI) -> None:
    names = [each["operationId"] for path in app.openapi()["paths"].values() for each in path.values()]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


def test_the_description_does_not_depend_on_the_machine(app: FastAPI) -> None:
    text = openapi_text(app)
    assert str(Path.home()) not in text
    assert str(ROOT) not in text


def test_the_description_is_for_those_who_may_look(client: Client, tokens: Tokens) -> None:
    answer = client.get("/openapi.json", headers=tokens.header(Role.VIEWER))
    assert answer.json()["info"]["title"] == "Herdsman"
    assert client.get("/openapi.json", headers=tokens.header(Role.METRICS)).status_code == 403
