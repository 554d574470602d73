"""Options of the ComfyUI connector: wrong ones are named with their values, secret ones never."""

import pytest

from herdsman.connectors.comfyui.options import ComfyUIOptions, read_options
from herdsman.errors import InvalidSettings


def test_only_the_address_is_needed() -> None:
    options = read_options({"url": "http://127.0.0.1:8188/"})
    assert options.timeout_s == 5.0
    assert (options.base_url, options.socket_url) == ("http://127.0.0.1:8188", "ws://127.0.0.1:8188/ws")
    assert read_options({"url": "https://h/comfy"}).socket_url == "wss://h/comfy/ws"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the option url is missing"),
        ({"url": "ftp://h"}, "url must be .* 'ftp://h'"),
        ({"url": "127.0.0.1:8188"}, "url must be .* '127.0.0.1:8188'"),
        ({"url": "http://"}, "url must be"),
        ({"url": "http://h:x"}, "url must be .* 'http://h:x'"),
        ({"url": "http://h/?a=b"}, "without"),
        ({"url": 5}, "url must be a text .* 5"),
        ({"url": "http://h", "timeout": 5}, "no option 'timeout'; it has: url, timeout_s"),
        ({"url": "http://h", "timeout_s": 0}, "timeout_s must be a number, above 0, and not 0"),
        ({"url": "http://h", "timeout_s": float("nan")}, "timeout_s must be .* nan"),
        ({"url": "http://h", "max_previews": -1}, "max_previews must be .* -1"),
        ({"url": "http://h", "upload_limit_mb": "9"}, "upload_limit_mb must be .* '9'"),
        ({"url": "http://h", "allow_partial": "yes"}, "allow_partial must be true or false, and not 'yes'"),
        ({"url": "http://h", "headers": "x"}, "headers must be an object"),
        ({"url": "http://h", "headers": {"A b": "x"}}, "'A b', which is no name"),
    ],
)
def test_a_wrong_option_is_named_with_its_value(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        read_options(given)


@pytest.mark.parametrize("headers", [{"Authorization": "hunter2\n"}, {"Authorization": ["hunter2"]}])
def test_a_wrong_header_does_not_give_its_value_away(headers: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings, match="Authorization") as caught:
        read_options({"url": "http://h", "headers": headers})
    assert "hunter2" not in str(caught.value)


def test_an_address_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidSettings, match="put it into headers") as caught:
        read_options({"url": "http://me:hunter2@h"})
    assert "hunter2" not in str(caught.value)


def test_headers_are_not_shown() -> None:
    options: ComfyUIOptions = read_options({"url": "http://h", "headers": {"Authorization": "hunter2"}})
    assert "hunter2" not in repr(options)
    assert options.plain_headers() == {"Authorization": "hunter2"}
