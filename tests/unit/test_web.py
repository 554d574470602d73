"""What a guarded client reaches, and what it does not: judged by the address that is connected to."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from herdsman.errors import Forbidden, InvalidSettings
from herdsman.web import Gate, guarded_client, refusal

PUBLIC = "93.184.216.34"
Resolve = Callable[[dict[str, list[str]]], list[str]]


class Handler(BaseHTTPRequestHandler):
    seen: list[tuple[str, dict[str, str]]]
    redirects: dict[str, str]

    def do_GET(self) -> None:
        self.seen.append((self.path, {key.lower(): value for key, value in self.headers.items()}))
        target = self.redirects.get(self.path)
        self.send_response(200 if target is None else 302)
        if target is not None:
            self.send_header("Location", target)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Place:
    """A small server on loopback."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.redirects: dict[str, str] = {}
        handler = type("Own", (Handler,), {"seen": self.seen, "redirects": self.redirects})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        self.host = f"127.0.0.1:{self.port}"


@contextmanager
def served(tls: ssl.SSLContext | None = None) -> Generator[Place]:
    place = Place(tls)
    thread = threading.Thread(target=place.server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield place
    finally:
        place.server.shutdown()
        place.server.server_close()
        thread.join()


@pytest.fixture
def place() -> Iterator[Place]:
    with served() as running:
        yield running


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Names mean what the test says; the list fills with the names that were asked for."""

    def use(names: dict[str, list[str]]) -> list[str]:
        asked: list[str] = []
        real = socket.getaddrinfo

        def look_up(host: str, port: int, *args: int, **more: int) -> list[tuple[object, ...]]:
            if host not in names:
                return list(real(host, port, *args, **more))
            asked.append(host)
            # A name that is asked for again means something else: the trick that must not work.
            turn = names[host] if asked.count(host) == 1 else ["127.0.0.1"]
            return [each for ip in turn for each in real(ip, port, *args, **more)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        return asked

    return use


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "169.254.170.2",
        "168.63.129.16",
        "192.0.0.192",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001:0:5ef5:79fd::",
        "2001:db8::1",
        "fe80::1",
        "fe80::1%1",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert refusal(address) is not None


@pytest.mark.parametrize("address", [PUBLIC, "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_a_public_address_is_let_through(address: str) -> None:
    assert refusal(address) is None


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "2130706433",
        "0177.1",
        "0x7f.1",
        "127.1",
        "[::ffff:127.0.0.1]",
    ],
)
def test_loopback_is_refused_however_it_is_written(place: Place, host: str) -> None:
    with guarded_client() as client, pytest.raises(Forbidden, match="must not be reached"):
        client.get(f"http://{host}:{place.port}/")
    assert place.seen == []


def test_a_refusal_names_the_host_the_address_and_the_way_out(resolve: Resolve) -> None:
    resolve({"evil.example": ["10.0.0.7"]})
    with guarded_client() as client, pytest.raises(Forbidden) as caught:
        client.get("http://evil.example:8188/")
    for part in ("evil.example", "10.0.0.7", "not a public address", "evil.example:8188"):
        assert part in str(caught.value)


def test_a_name_with_one_private_address_among_public_ones_is_refused(resolve: Resolve) -> None:
    resolve({"mixed.example": [PUBLIC, "192.168.0.1"]})
    with pytest.raises(Forbidden, match=r"192\.168\.0\.1"):
        Gate().addresses("mixed.example", 80)


def test_a_name_is_resolved_once_and_connected_to_at_that_very_address(
    resolve: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that turns to loopback between the look and the connection gains nothing."""
    asked = resolve({"turning.example": [PUBLIC]})
    reached: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        reached.append(address)
        raise ConnectionRefusedError("a test reaches nobody")

    monkeypatch.setattr(socket, "create_connection", connect)
    with guarded_client() as client, pytest.raises(httpx.ConnectError):
        client.get("http://turning.example/")
    assert (asked, reached) == (["turning.example"], [(PUBLIC, 80)])


def test_a_redirect_to_a_private_address_is_refused(place: Place) -> None:
    with served() as inside, guarded_client([place.host]) as client:
        place.redirects["/go"] = f"http://{inside.host}/secret"
        with pytest.raises(Forbidden, match=inside.host):
            client.get(f"http://{place.host}/go")
        assert inside.seen == []


def test_a_redirect_to_an_allowed_place_leaves_the_keys_behind(place: Place) -> None:
    keys = {"Authorization": "Bearer key", "X-Api-Key": "key"}
    with served() as other, guarded_client(["127.0.0.1"], headers=keys) as client:
        place.redirects["/go"] = f"http://{other.host}/end"
        place.redirects["/stay"] = "/end"
        assert client.get(f"http://{place.host}/go").text == "ok"
        assert client.get(f"http://{place.host}/stay").text == "ok"
        assert {"authorization", "x-api-key"}.isdisjoint(other.seen[0][1])
    assert all(headers["x-api-key"] == "key" for _, headers in place.seen)


def test_redirects_that_never_end_are_given_up(place: Place) -> None:
    place.redirects["/round"] = "/round"
    with guarded_client([place.host]) as client, pytest.raises(httpx.TooManyRedirects):
        client.get(f"http://{place.host}/round")


def test_an_allowed_host_is_reached_on_every_port_and_an_allowed_port_alone(place: Place) -> None:
    for allow in ("127.0.0.1", place.host):
        with guarded_client([allow]) as client:
            assert client.get(f"http://{place.host}/").text == "ok"
    with guarded_client(["127.0.0.1:1"]) as client, pytest.raises(Forbidden):
        client.get(f"http://{place.host}/")


def test_an_allowed_name_may_mean_a_private_address(place: Place, resolve: Resolve) -> None:
    resolve({"comfy.internal": ["127.0.0.1"], "other.internal": ["127.0.0.1"]})
    with guarded_client(["Comfy.Internal."]) as client:
        assert client.get(f"http://comfy.internal:{place.port}/").text == "ok"
        with pytest.raises(Forbidden):
            client.get(f"http://other.internal:{place.port}/")


@pytest.mark.parametrize(
    ("entry", "host", "port"),
    [
        ("::1", "::1", 5),
        ("[::1]:80", "::1", 80),
        ("bücher.example", "xn--bcher-kva.example", 80),
        ("a.b:80", "A.b", 80),
    ],
)
def test_an_entry_of_allow_is_understood_however_it_is_written(entry: str, host: str, port: int) -> None:
    assert Gate([entry]).allows(host, port)
    assert not Gate([entry]).allows("b.example", port)


@pytest.mark.parametrize("entry", ["", "http://a.example", "a.example/path", "u@a.example", "a.example:http", ":80"])
def test_an_entry_of_allow_that_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(InvalidSettings, match="NAME:PORT"):
        guarded_client([entry])


@pytest.mark.parametrize("url", ["ftp://example.com/x", "file:///etc/passwd", "gopher://127.0.0.1:70/", "unix:///x"])
def test_other_schemes_are_refused(url: str) -> None:
    with guarded_client(["127.0.0.1"]) as client, pytest.raises((Forbidden, httpx.UnsupportedProtocol)):
        client.get(url)


def test_a_user_in_a_url_is_refused_and_not_repeated(place: Place) -> None:
    with guarded_client([place.host]) as client, pytest.raises(Forbidden) as caught:
        client.get(f"http://me:hunter2@{place.host}/")
    assert "hunter2" not in str(caught.value)
    assert place.seen == []


def test_a_proxy_of_the_environment_is_not_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{place.host}")
    monkeypatch.setenv("ALL_PROXY", f"http://{place.host}")
    with guarded_client() as client, pytest.raises(Forbidden):
        client.get("http://10.0.0.1/")
    assert place.seen == []


def test_a_name_that_nobody_knows_is_an_error_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with guarded_client() as client, pytest.raises(httpx.ConnectError, match=r"nowhere\.example"):
        client.get("http://nowhere.example/")


def test_a_place_that_is_silent_ends_in_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with guarded_client(["127.0.0.1"], timeout=0.2) as client, pytest.raises(httpx.ReadTimeout):
            client.get(f"http://127.0.0.1:{port}/")


def test_tls_verifies_the_name_and_not_the_address(tmp_path: Path, resolve: Resolve) -> None:
    resolve({"right.example": ["127.0.0.1"], "wrong.example": ["127.0.0.1"]})
    server_side, client_side = certified("right.example", tmp_path)
    allow = ["right.example", "wrong.example"]
    with served(server_side) as place, guarded_client(allow, tls=client_side) as client:
        assert client.get(f"https://right.example:{place.port}/").text == "ok"
        with pytest.raises(httpx.ConnectError, match=r"wrong\.example"):
            client.get(f"https://wrong.example:{place.port}/")


def certified(name: str, directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side and a client's side of TLS, with a certificate for this name."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    asked = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name}"
    command = [
        *asked.split(),
        "-addext",
        f"subjectAltName=DNS:{name}",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)
    return server_side, ssl.create_default_context(cafile=str(certificate))


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1", "this machine"),
        ("::", "this machine"),
        ("169.254.169.254", "metadata"),
        ("10.0.0.1", "public"),
    ],
)
def test_a_refusal_says_what_kind_of_address_it_is(address: str, told: str) -> None:
    assert told in (refusal(address) or "")
