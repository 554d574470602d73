"""With which certificate the API starts, and by which address it says that it can be called."""

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi import FastAPI

from herdsman.cli import findings
from herdsman.cli.findings import State
from herdsman.errors import InvalidSettings
from herdsman.server.certificate import read_certificate, require_valid
from herdsman.server.http_server import ApiServer, Listening, Tls, bind
from herdsman.settings import load_settings

_CA = "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
NEW = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=herd.example"


def openssl(directory: Path, words: str) -> None:
    subprocess.run(["openssl", *words.split()], cwd=directory, check=True, capture_output=True, timeout=60)


def certified(directory: Path, *names: str) -> Tls:
    also = f" -addext subjectAltName={','.join(names)}" if names else ""
    openssl(directory, f"req -x509 {NEW} -days 2 -keyout key.pem -out certificate.pem{also}")
    return Tls(certificate=directory / "certificate.pem", key=directory / "key.pem")


def test_an_expired_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "ca.cnf").write_text(_CA)
    (tmp_path / "index").touch()
    (tmp_path / "serial").write_text("01\n")
    openssl(tmp_path, f"req -new {NEW} -keyout key.pem -out asked.pem")
    dates = "-startdate 20200101000000Z -enddate 20200201000000Z"
    files = "-keyfile key.pem -in asked.pem -out certificate.pem"
    openssl(tmp_path, f"ca -batch -selfsign -notext -config ca.cnf {files} {dates}")
    tls = Tls(certificate=tmp_path / "certificate.pem", key=tmp_path / "key.pem")
    with pytest.raises(InvalidSettings, match="has expired at 2020-02-01 00:00 UTC: renew it"):
        bind(Listening(tls=tls))


def test_a_certificate_is_good_between_its_dates_and_with_its_key(tmp_path: Path) -> None:
    tls = certified(tmp_path, "DNS:herd.example", "IP:192.0.2.7")
    found = read_certificate(tls.certificate, tls.key)
    assert found.names == ("herd.example", "192.0.2.7")
    require_valid(tls.certificate, found, found.begins)
    for when in (found.begins - timedelta(seconds=1), found.ends):
        with pytest.raises(InvalidSettings, match="API_TLS_CERTIFICATE"):
            require_valid(tls.certificate, found, when)
    openssl(tmp_path, f"req -x509 {NEW} -keyout other.pem -out other-certificate.pem")
    with pytest.raises(InvalidSettings, match=r"cannot be used with the key .*other\.pem"):
        read_certificate(tls.certificate, tmp_path / "other.pem")


@pytest.mark.parametrize(("host", "said"), [("0.0.0.0", "http://127.0.0.1:"), ("::", "http://[::1]:")])
def test_behind_a_proxy_it_is_called_by_an_address_of_this_machine(app: FastAPI, host: str, said: str) -> None:
    server = ApiServer(app, bind(Listening(host=host, behind_proxy=True)), on_stop=lambda: None)
    server.start()
    try:
        assert server.url.startswith(said)
    finally:
        server.stop()


def test_with_tls_it_is_called_by_a_name_of_its_certificate(app: FastAPI, tmp_path: Path) -> None:
    tls = certified(tmp_path, "DNS:herd.example", "DNS:other.example")
    listening = Listening(host="0.0.0.0", tls=tls, names=("Other.Example",))
    server = ApiServer(app, bind(listening), on_stop=lambda: None)
    server.start()
    try:
        assert server.url.startswith("https://other.example:")
    finally:
        server.stop()


def test_without_a_name_to_call_it_says_which_setting_to_set(app: FastAPI, tmp_path: Path) -> None:
    tls = certified(tmp_path, "DNS:herd.example")
    with pytest.raises(InvalidSettings, match=r"it has herd\.example.*set API_URL"):
        bind(Listening(host="0.0.0.0", tls=tls))
    called = "https://herd.example"
    server = ApiServer(app, bind(Listening(host="0.0.0.0", tls=tls, called=called)), on_stop=lambda: None)
    server.start()
    try:
        assert server.url == called
    finally:
        server.stop()


@pytest.mark.parametrize("url", ["https://0.0.0.0:8765", "http://[::]:8765/x"])
def test_nobody_is_told_to_call_every_address(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"API_URL.*an address that can be called"):
        load_settings({"API_URL": url}, tmp_path)


@pytest.mark.parametrize(
    ("names", "days", "state"),
    [(("a",), 15, State.OK), (("a",), 13, State.WARN), ((), 90, State.FAIL)],
)
def test_the_doctor_looks_at_the_certificate(names: tuple[str, ...], days: int, state: State) -> None:
    assert findings.certificate("c.pem", names, timedelta(days=days)).status is state
