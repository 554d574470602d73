"""The dashboard's own files: open to all, small, guarded by a strict policy, and nothing but themselves."""

import gzip
import re
from pathlib import Path

import pytest

from herdsman.cli.main import COMMANDS
from herdsman.server.routes.dashboard import CHARTS, PAGE, POLICY, assets
from tests.api.calling import Client

STATIC = Path(__file__).parents[2] / "src/herdsman/server/dashboard/static"
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8", "accept-encoding": "gzip, deflate, br"}
SCRIPTS = sorted(STATIC.rglob("*.js"))
BUDGET = 300_000
"""What the Overview may transfer in all, its data included."""
DATA = 30_000


def test_a_browser_gets_the_page_without_a_token(client: Client) -> None:
    answer = client.get("/", headers=BROWSER)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert '<div id="app">' in answer.text


@pytest.mark.parametrize("path", ["/", "/assets/app.js", "/assets/pages/job.js", f"/assets/{CHARTS}"])
def test_every_part_is_guarded(client: Client, path: str) -> None:
    headers = client.get(path, headers=BROWSER).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-cache"


def test_the_policy_lets_in_nothing_from_elsewhere() -> None:
    rules = {name: said for name, _, said in (rule.strip().partition(" ") for rule in POLICY.split(";"))}
    assert rules.pop("img-src") == "'self' blob: data:"
    assert rules["default-src"] == rules["base-uri"] == rules["frame-ancestors"] == "'none'"
    assert set(rules.values()) == {"'none'", "'self'"}


@pytest.mark.parametrize("accept", ["application/json", "text/html;q=0", "image/*, text/plain"])
def test_who_asks_for_something_else_is_told_where_it_is(client: Client, accept: str) -> None:
    answer = client.get("/", headers={"accept": accept})
    assert answer.status_code == 406
    assert "/openapi.json" in answer.json()["detail"]


@pytest.mark.parametrize("accept", ["*/*", "text/*", "application/json, text/html;q=0.5"])
def test_who_would_take_a_page_gets_it(client: Client, accept: str) -> None:
    assert client.get("/", headers={"accept": accept}).status_code == 200


def test_each_part_has_its_type(client: Client) -> None:
    kinds = {"app.js": "text/javascript", "base.css": "text/css", "icon.svg": "image/svg+xml"}
    for name, kind in kinds.items():
        assert client.get(f"/assets/{name}").headers["content-type"].startswith(kind)


def test_it_is_compressed_for_those_who_can_read_that(client: Client) -> None:
    plain = client.get("/assets/app.js", headers={"accept-encoding": "identity"})
    packed = client.get("/assets/app.js", headers={"accept-encoding": "br, gzip"})
    refused = client.get("/assets/app.js", headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in refused.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])
    assert packed.content == plain.content == refused.content == (STATIC / "app.js").read_bytes()
    assert packed.headers["vary"] == "Accept-Encoding"


def test_what_is_known_already_is_not_sent_again(client: Client) -> None:
    tag = client.get("/assets/app.js").headers["etag"]
    again = client.get("/assets/app.js", headers={"if-none-match": f'"other", {tag}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == tag
    assert client.get("/assets/app.js", headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../pages.py",
        "/assets/%2e%2e/pages.py",
        "/assets/%2e%2e%2fpages.py",
        "/assets/pages/%2e%2e%2f%2e%2e%2fassets.py",
        "/assets/%2fetc%2fpasswd",
        "/assets//etc/passwd",
        "/assets/..%5cpages.py",
        "/assets/pages",
        "/assets/index.html%00",
        "/assets/a/b/c",
        "/assets/",
    ],
)
def test_a_path_leads_to_nothing_else(client: Client, path: str) -> None:
    # 401 where a client tidies the path before it sends it, and it is none of the dashboard's any more.
    assert client.get(path).status_code in (401, 404)


def test_only_our_own_files_and_the_plots_are_served() -> None:
    ours = {each.relative_to(STATIC).as_posix() for each in STATIC.rglob("*") if each.is_file()}
    assert set(assets()) == ours | {CHARTS}


def test_the_charts_come_from_a_package_and_not_from_us() -> None:
    assert assets()[CHARTS].plain.startswith(b"/*!\n * Chart.js v")
    assert not (STATIC / CHARTS).exists()


def test_the_overview_fits_its_budget() -> None:
    first = [
        *re.findall(r'"/assets/([\w./]+)"', (STATIC / PAGE).read_text()),
        "pages/overview.js",
        "charts.js",
    ]
    sent = sum(len(assets()[name].compressed) for name in {*first, "theming.js", PAGE, CHARTS})
    assert sent + DATA < BUDGET


def test_what_the_start_needs_is_fetched_at_once() -> None:
    """A module that another one imports would else be asked for only when that one has come."""
    told = set(re.findall(r'"/assets/([\w./]+\.js)"', (STATIC / PAGE).read_text()))
    assert _needed("app.js") <= told


def _needed(name: str) -> set[str]:
    found = re.findall(r'from "\./([\w./]+)"', (STATIC / name).read_text())
    return {name}.union(*(_needed(each) for each in found))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.name)
def test_no_script_makes_code_or_markup_of_data(script: Path) -> None:
    text = script.read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in text, f"{script.name} has {word}: use h() and patch()"
    assert not re.search(r"https?://(?!www\.w3\.org)", text), f"{script.name} speaks of another server"


def test_the_page_has_no_script_and_no_style_in_it() -> None:
    page = (STATIC / PAGE).read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page)


def test_every_import_leads_somewhere() -> None:
    for script in SCRIPTS:
        for path in re.findall(r'from "(\.{1,2}/[\w./]+)"', script.read_text()):
            assert (script.parent / path).is_file(), f"{script.name} imports {path}"


def test_every_command_that_is_shown_is_one_of_ours() -> None:
    shown = {
        (script.name, command)
        for script in SCRIPTS
        for command in re.findall(r"[\"'`]herdsman ([a-z-]+)", script.read_text())
    }
    assert shown
    assert {(name, command) for name, command in shown if command not in COMMANDS} == set()


def test_compression_is_the_same_on_every_start() -> None:
    """A time inside would make two replicas answer with different bytes."""
    packed = assets()["app.js"].compressed
    assert packed[4:8] == b"\0\0\0\0"
    assert gzip.decompress(packed) == assets()["app.js"].plain
