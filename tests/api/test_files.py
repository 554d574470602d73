"""Files of jobs over HTTP: for those who may see the job, as bytes and never as a page."""

import asyncio
import hashlib
from pathlib import Path

import httpx
import pytest

from herdsman.access.rules import Role
from herdsman.client import AsyncClient
from herdsman.client import Client as HttpClient
from herdsman.context import Services
from herdsman.errors import NotFound, ServiceUnavailable, Unreachable
from herdsman.jobs.worker_commands import complete_job
from herdsman.ports import ResultFiles
from herdsman.results import ResultOptions, open_store
from herdsman.server.http_server import ApiServer
from herdsman.server.state import ServerState
from tests.api.calling import Client
from tests.api.conftest import Build, Tokens
from tests.support.apps import an_app
from tests.support.builders import a_claim

Header = dict[str, str]
VIDEO = bytes(range(256)) * 4000


@pytest.fixture
def store(tmp_path: Path) -> ResultFiles:
    return open_store(ResultOptions(place=str(tmp_path / "results")))


@pytest.fixture
def state(build: Build, store: ResultFiles) -> ServerState:
    return build(results=store)


@pytest.fixture
def admin(tokens: Tokens) -> Header:
    return tokens.header(Role.ADMIN)


def a_job_with(services: Services, store: ResultFiles, name: str, content: bytes, job_id: str = "j1") -> str:
    """Done, with one file; what its result tells as its sum."""
    claim = a_claim(services, job_id=job_id)
    kept = store.put(job_id, name, [content])
    output = {"node": "9", "name": kept.name, "uri": kept.uri, "bytes": kept.bytes, "sha256": kept.sha256}
    complete_job(services, claim.key, {"outputs": [output]})
    return kept.sha256


def get(client: Client, name: str, who: Header, **headers: str) -> httpx.Response:
    return client.get(f"/jobs/j1/files/{name}", headers={**who, **headers})


def test_a_file_of_a_job_comes_as_it_was_made(
    client: Client, services: Services, store: ResultFiles, admin: Header
) -> None:
    told = a_job_with(services, store, "cat 1.png", b"\x89PNG")
    answer = get(client, "cat%201.png", admin)
    assert (answer.status_code, answer.content) == (200, b"\x89PNG")
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["content-length"] == "4"
    assert answer.headers["etag"] == f'"{told}"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox"
    assert answer.headers["content-disposition"] == "inline; filename*=UTF-8''cat%201.png"


@pytest.mark.parametrize("name", ["page.html", "drawing.svg", "a.js", "a.xhtml", "noending"])
def test_what_a_browser_could_run_is_only_bytes_to_save(
    client: Client, services: Services, store: ResultFiles, admin: Header, name: str
) -> None:
    a_job_with(services, store, name, b"<script>alert(1)</script>")
    answer = get(client, name, admin)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")


@pytest.mark.parametrize(("name", "placed"), [("a.mp4", "inline"), ("a.mp3", "inline"), ("a.json", "attachment")])
def test_only_pictures_films_and_sound_are_shown(
    client: Client, services: Services, store: ResultFiles, admin: Header, name: str, placed: str
) -> None:
    a_job_with(services, store, name, b"{}")
    assert get(client, name, admin).headers["content-disposition"].startswith(placed)


def test_who_has_it_already_is_told_so(client: Client, services: Services, store: ResultFiles, admin: Header) -> None:
    told = a_job_with(services, store, "a.png", b"cat")
    again = get(client, "a.png", admin, **{"if-none-match": f'"other", "{told}"'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", f'"{told}"')
    assert get(client, "a.png", admin, **{"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    ("asked", "first", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=1023990-", 1_023_990, 1_024_000),
        ("bytes=-5", 1_023_995, 1_024_000),
        ("bytes=-99999999", 0, 1_024_000),
        ("bytes=1000000-99999999", 1_000_000, 1_024_000),
        ("bytes=100-800000", 100, 800_001),
    ],
)
def test_a_part_of_a_film_can_be_asked_for(
    client: Client, services: Services, store: ResultFiles, admin: Header, asked: str, first: int, end: int
) -> None:
    a_job_with(services, store, "a.mp4", VIDEO)
    answer = get(client, "a.mp4", admin, range=asked)
    assert (answer.status_code, answer.content) == (206, VIDEO[first:end])
    assert answer.headers["content-range"] == f"bytes {first}-{end - 1}/{len(VIDEO)}"


@pytest.mark.parametrize("asked", ["bytes=0-1,5-6", "bytes=-", "lines=1-2", "bytes=9-3", "bytes=a-b", ""])
def test_a_range_that_is_not_understood_is_left_aside(
    client: Client, services: Services, store: ResultFiles, admin: Header, asked: str
) -> None:
    a_job_with(services, store, "a.mp4", VIDEO)
    answer = get(client, "a.mp4", admin, range=asked)
    assert (answer.status_code, answer.content) == (200, VIDEO)


@pytest.mark.parametrize("asked", ["bytes=1024000-", "bytes=5000000-6000000", "bytes=-0"])
def test_a_range_behind_the_end_is_416(
    client: Client, services: Services, store: ResultFiles, admin: Header, asked: str
) -> None:
    a_job_with(services, store, "a.mp4", VIDEO)
    answer = get(client, "a.mp4", admin, range=asked)
    assert (answer.status_code, answer.json()["type"]) == (416, "urn:herdsman:no-such-range")


def test_the_rest_of_another_file_is_never_sent(
    client: Client, services: Services, store: ResultFiles, admin: Header
) -> None:
    told = a_job_with(services, store, "a.mp4", VIDEO)
    part = get(client, "a.mp4", admin, range="bytes=0-9", **{"if-range": f'"{told}"'})
    whole = get(client, "a.mp4", admin, range="bytes=0-9", **{"if-range": '"older"'})
    assert (part.status_code, whole.status_code) == (206, 200)


def test_an_empty_file_is_no_error(client: Client, services: Services, store: ResultFiles, admin: Header) -> None:
    a_job_with(services, store, "a.txt", b"")
    assert (get(client, "a.txt", admin).status_code, get(client, "a.txt", admin).content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/j1/files/b.png",
        "/jobs/j2/files/a.png",
        "/jobs/j1/files/%2e%2e",
        "/jobs/j1/files/%2e%2e%2fj1%2fa.png",
        "/jobs/j1/files/..%5Ca.png",
        "/jobs/j1/files/.%00a.png",
        "/jobs/..%2fj1/files/a.png",
    ],
)
def test_what_is_not_there_is_404(
    client: Client, services: Services, store: ResultFiles, admin: Header, path: str
) -> None:
    a_job_with(services, store, "a.png", b"cat")
    assert client.get(path, headers=admin).status_code == 404


def test_files_of_a_job_that_is_gone_are_not_shown(client: Client, store: ResultFiles, admin: Header) -> None:
    store.put("j1", "a.png", [b"cat"])
    assert get(client, "a.png", admin).status_code == 404


def test_x2_files_of_others_do_not_exist_for_a_submitter(
    client: Client, services: Services, store: ResultFiles, tokens: Tokens
) -> None:
    a_job_with(services, store, "a.png", b"cat")
    assert get(client, "a.png", tokens.header(Role.SUBMITTER, "somebody-else")).status_code == 404
    assert get(client, "a.png", tokens.header(Role.VIEWER, "looker")).status_code == 200


def test_a_file_that_the_result_does_not_tell_of_has_no_tag(
    client: Client, services: Services, store: ResultFiles, admin: Header
) -> None:
    a_job_with(services, store, "a.png", b"cat")
    store.put("j1", "preview.png", [b"kitten"])
    answer = get(client, "preview.png", admin)
    assert (answer.status_code, answer.content) == (200, b"kitten")
    assert "etag" not in answer.headers


class Away:
    """A store that cannot be reached."""

    def find(self, job_id: str, name: str) -> str:
        raise ServiceUnavailable(f"the bucket does not answer for {name} of {job_id}")


def test_a_store_that_is_away_is_503(build: Build, services: Services, store: ResultFiles, admin: Header) -> None:
    a_job_with(services, store, "a.png", b"cat")
    with Client(an_app(build(results=Away()))) as client:
        answer = get(client, "a.png", admin)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:herdsman:results-unavailable")


def test_a_client_saves_a_file_and_checks_its_sum(
    api_server: ApiServer, services: Services, store: ResultFiles, tokens: Tokens, tmp_path: Path
) -> None:
    told = a_job_with(services, store, "Übung 猫 #1.mp4", VIDEO)
    with HttpClient(api_server.url, tokens.of(Role.ADMIN, "boss").secret) as client:
        into = client.download("j1", "Übung 猫 #1.mp4", tmp_path)
        named = client.download("j1", "Übung 猫 #1.mp4", tmp_path / "film.mp4")
        with pytest.raises(NotFound, match="no file"):
            client.download("j1", "other.mp4", tmp_path)
    assert (into, named) == (tmp_path / "Übung 猫 #1.mp4", tmp_path / "film.mp4")
    assert hashlib.sha256(into.read_bytes()).hexdigest() == told
    assert named.read_bytes() == VIDEO
    assert sorted(each.name for each in tmp_path.iterdir()) == ["film.mp4", "results", "Übung 猫 #1.mp4"]


def test_a_client_with_an_event_loop_does_the_same(
    api_server: ApiServer, services: Services, store: ResultFiles, tokens: Tokens, tmp_path: Path
) -> None:
    a_job_with(services, store, "a.mp4", VIDEO)

    async def saved() -> Path:
        async with AsyncClient(api_server.url, tokens.of(Role.ADMIN, "boss").secret) as client:
            return await client.download("j1", "a.mp4", tmp_path)

    assert asyncio.run(saved()).read_bytes() == VIDEO


def test_a_file_that_was_changed_is_not_taken(
    api_server: ApiServer, services: Services, store: ResultFiles, tokens: Tokens, tmp_path: Path
) -> None:
    a_job_with(services, store, "a.png", b"cat")
    (tmp_path / "results" / "j1" / "a.png").write_bytes(b"dog")
    (tmp_path / "a.png").write_bytes(b"older")
    with (
        HttpClient(api_server.url, tokens.of(Role.ADMIN, "boss").secret) as client,
        pytest.raises(Unreachable, match="SHA-256"),
    ):
        client.download("j1", "a.png", tmp_path)
    assert (tmp_path / "a.png").read_bytes() == b"older"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.png", "results"]
