"""Settings with which a broker can never work are refused, each with one clear line."""

import math

import pytest

from pairbus.broker import run
from pairbus.broker.settings import Limits

OWN = {"host": "0.0.0.0", "key": "a-key-of-our-own"}


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_an_empty_key_is_refused_and_is_not_the_well_known_one(host):
    with pytest.raises(ValueError, match=r"^the key is empty$"):
        run(host=host, key="")


@pytest.mark.parametrize("key", ["hush;hush", " hush", "hush\n"])
def test_a_key_that_no_connection_string_can_hold_is_refused_without_being_shown(key):
    with pytest.raises(ValueError, match=r"^the key cannot be part of a connection string") as no:
        run(key=key)
    assert "hush" not in str(no.value)


@pytest.mark.parametrize("name", ["", "a;b", "a "])
def test_a_key_name_that_no_connection_string_can_hold_is_refused(name):
    with pytest.raises(ValueError, match="the name of the key"):
        run(key_name=name, **OWN)


@pytest.mark.parametrize(
    "name", ["credits_per_second", "idle_link_timeout", "idle_connection_timeout"]
)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_a_limit_that_is_no_number_of_seconds_or_credits_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be 0 \(off\) or more, and finite$"):
        run(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connections", 0),
        ("links", 0),
        ("frame_size", 511),
        ("message_size", 0),
        ("write_buffer", 0),
        ("sniff_timeout", 0),
        ("open_timeout", math.nan),
        ("idle_timeout", -1),
    ],
)
def test_a_limit_with_which_no_client_can_connect_or_send_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be "):
        Limits(**{name: value})


@pytest.mark.parametrize("name", ["port", "control_port"])
@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_does_not_exist_is_refused(name, port):
    with pytest.raises(ValueError, match=f"^{name} must be from 0 to 65535, got {port}$"):
        run(**{name: port})


@pytest.mark.parametrize("name", ["", "a/b", "con toso", "contoso;x", "-a", "ö", "a" * 51])
def test_a_namespace_whose_backlog_queues_could_not_exist_is_refused(name):
    with pytest.raises(ValueError, match="is not a valid name of a namespace"):
        run(name)


@pytest.mark.parametrize(
    ("origin", "sent"),
    [
        ("https://App.example", "https://app.example"),
        ("https://app.example/", "https://app.example"),
        ("https://app.example/page?q", "https://app.example"),
        ("https://user@app.example", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("http://[::1]:80/", "http://[::1]"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused_with_the_one_that_it_sends(origin, sent):
    with pytest.raises(ValueError, match="allowed origin") as refused:
        run(allowed_origins=[origin])
    assert str(refused.value).endswith(f"a browser sends {sent!r}")


@pytest.mark.parametrize("origin", ["", "app.example", "https://", "https://a:b", "https://*.b"])
def test_what_is_no_origin_is_refused(origin):
    with pytest.raises(ValueError, match="allowed origin"):
        run(allowed_origins=[origin])


def test_origins_that_browsers_send_are_accepted():
    origins = (
        "*",
        "null",
        "file://",
        "http://localhost:3000",
        "https://[::1]:8443",
        "vscode-webview://a1b2",
    )
    assert run(allowed_origins=origins).settings.allowed_origins == origins
