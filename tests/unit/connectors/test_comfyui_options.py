"""Options of the ComfyUI connector: wrong ones are named, numbers with their values, secret ones never."""

import pytest

from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.registry import read_options
from herdsman.errors import InvalidSettings


def test_only_the_address_is_needed() -> None:
    options = read_options(ComfyUIOptions, {"url": "http://127.0.0.1:8188/"})
    assert options.timeout_s == 5.0
    assert (options.base_url, options.socket_url) == ("http://127.0.0.1:8188", "ws://127.0.0.1:8188/ws")
    assert read_options(ComfyUIOptions, {"url": "https://h/comfy"}).socket_url == "wss://h/comfy/ws"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "option url: Field required"),
        ({"url": "ftp://h"}, "option url: it must be .* 'ftp://h'"),
        ({"url": "127.0.0.1:8188"}, "option url: it must be .* '127.0.0.1:8188'"),
        ({"url": "http://"}, "option url: it must be"),
        ({"url": "http://h:x"}, "option url: it must be .* 'http://h:x'"),
        ({"url": "http://h/?a=b"}, "without"),
        ({"url": 5}, "option url: .* string, and not 5"),
        (
            {"url": "http://h", "timeout": 5},
            "option timeout: there is no such option; there are: url, timeout_s",
        ),
        ({"url": "http://h", "timeout_s": 0}, "option timeout_s: .* greater than 0, and not 0"),
        ({"url": "http://h", "timeout_s": float("nan")}, "option timeout_s: .* nan"),
        ({"url": "http://h", "max_previews": -1}, "option max_previews: .* -1"),
        ({"url": "http://h", "upload_limit_mb": "9"}, "option upload_limit_mb: .* valid integer"),
        ({"url": "http://h", "allow_partial": "yes"}, "option allow_partial: .* valid boolean"),
        ({"url": "http://h", "headers": "x"}, "option headers: .* dictionary"),
        ({"url": "http://h", "headers": {"A b": "x"}}, "'A b', which is no name"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        read_options(ComfyUIOptions, given)


@pytest.mark.parametrize("headers", [{"Authorization": "hunter2\n"}, {"Authorization": ["hunter2"]}])
def test_a_wrong_header_does_not_give_its_value_away(headers: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings, match="Authorization") as caught:
        read_options(ComfyUIOptions, {"url": "http://h", "headers": headers})
    assert "hunter2" not in str(caught.value)


def test_an_address_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidSettings, match="put it into headers") as caught:
        read_options(ComfyUIOptions, {"url": "http://me:hunter2@h"})
    assert "hunter2" not in str(caught.value)


def test_headers_are_not_shown() -> None:
    options: ComfyUIOptions = read_options(ComfyUIOptions, {"url": "http://h", "headers": {"Authorization": "hunter2"}})
    assert "hunter2" not in repr(options)
    assert options.plain_headers() == {"Authorization": "hunter2"}
