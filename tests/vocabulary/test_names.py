"""Hosts, connection strings, backlog paths, billable sizes and atomic file writes."""

import os
import re
import stat
from pathlib import Path

import pytest
from azure.servicebus import parse_connection_string as sdk_parse
from hypothesis import given
from hypothesis import strategies as st

from pairbus import names
from pairbus.names import (
    backlog_label,
    backlog_path,
    backlog_paths,
    backlog_prefix,
    billable,
    describe_entity,
    format_connection_string,
    is_connection_string,
    join_host,
    namespace_from_host,
    namespace_or_host,
    parse_backlog_path,
    parse_connection_string,
    replace_endpoint,
    split_host,
    write_atomically,
)

KEY = "SharedAccessKeyName=k;SharedAccessKey=s3cr3t+/="


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("contoso.servicebus.windows.net", ("contoso.servicebus.windows.net", None)),
        ("Contoso.ServiceBus.Windows.Net.", ("contoso.servicebus.windows.net", None)),
        ("sb://contoso.example/", ("contoso.example", None)),
        ("amqps://user@contoso.example:5671/queue?x=1", ("contoso.example", 5671)),
        (" localhost:5672 ", ("localhost", 5672)),
        ("127.0.0.1:5672", ("127.0.0.1", 5672)),
        ("[::1]:5672", ("::1", 5672)),
        ("[FE80::1]", ("fe80::1", None)),
        ("::1", ("::1", None)),
        ("sb://[::1]:5672/", ("::1", 5672)),
    ],
)
def test_host_is_split_from_its_port(text, expected):
    assert split_host(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no host"),
        ("sb:///", "no host"),
        (":5672", "no host"),
        ("[]", "no host"),
        ("host:amqp", "port of host"),
        ("host:0", "port of host"),
        ("host:65536", "port of host"),
        ("host:²", "port of host"),
        ("[::1]x", "brackets"),
    ],
)
def test_unusable_host_is_reported_in_one_line(text, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        split_host(text)
    assert "\n" not in str(caught.value)


@given(st.ip_addresses(), st.none() | st.integers(1, 65535))
def test_joined_host_splits_into_the_same_parts(address, port):
    assert split_host(join_host(str(address), port)) == (str(address), port)


@given(st.ip_addresses(), st.none() | st.integers(1, 65535))
def test_no_address_names_a_namespace(address, port):
    assert namespace_from_host(join_host(str(address), port)) is None


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("contoso.servicebus.windows.net", "contoso"),
        ("CONTOSO.servicebus.windows.net:5671", "contoso"),
        ("sb://contoso.servicebus.windows.net/", "contoso"),
        ("contoso", "contoso"),
        ("contoso:5672", "contoso"),
        ("1contoso.example", "1contoso"),
        ("localhost", None),
        ("LocalHost:5672", None),
        ("localhost.localdomain", None),
        ("127.0.0.1:5672", None),
        ("127.1", None),
        ("[::1]:5672", None),
        ("::1", None),
        ("[::ffff:10.0.0.1]", None),
    ],
)
def test_namespace_is_the_first_label_of_a_host_name(host, name):
    assert namespace_from_host(host) == name


def test_namespace_without_a_name_is_shown_by_its_host():
    assert namespace_or_host("contoso.example:5671") == "contoso"
    assert namespace_or_host("sb://[::1]:5672/") == "[::1]:5672"
    assert namespace_or_host("127.0.0.1:5672") == "127.0.0.1:5672"


def test_backlog_paths_carry_the_name_of_the_primary():
    assert backlog_paths("contoso", 2) == [
        "contoso/x-servicebus-transfer/0",
        "contoso/x-servicebus-transfer/1",
    ]
    assert backlog_path("contoso", 7).startswith(backlog_prefix("contoso"))


@given(st.from_regex(r"[a-z][a-z0-9-]{0,48}", fullmatch=True), st.integers(0, 10**6))
def test_backlog_path_is_read_back(namespace, index):
    assert parse_backlog_path(backlog_path(namespace, index)) == (namespace, index)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("contoso/X-ServiceBus-Transfer/3", ("contoso", 3)),
        ("/contoso/x-servicebus-transfer/3/", ("contoso", 3)),
        ("orders", None),
        ("contoso/x-servicebus-transfer/", None),
        ("contoso/x-servicebus-transfer/three", None),
        ("contoso/x-servicebus-transfer/3/$DeadLetterQueue", None),
        ("a/contoso/x-servicebus-transfer/3", None),
    ],
)
def test_other_paths_are_not_backlog_queues(path, expected):
    assert parse_backlog_path(path) == expected


def test_backlog_queue_is_shown_by_its_index():
    assert backlog_label("contoso/X-ServiceBus-Transfer/03/") == "3"
    assert backlog_label("orders") == "orders"


def test_entities_have_short_names_that_begin_with_what_tells_them_apart():
    assert describe_entity("127.0.0.1:5672", backlog_path("contoso", 3)) == "backlog 3 of contoso"
    assert describe_entity("contoso", "a/orders") == "a/orders, contoso"


def test_connection_string_is_read_without_regard_to_case_and_whitespace():
    parts = parse_connection_string(
        " endpoint = sb://Contoso.Example/ ; SHAREDACCESSKEYNAME=k;SharedAccessKey=s3cr3t+/=;"
        "entitypath=/orders/ ;\n"
    )
    assert (parts.host, parts.port, parts.authority) == ("contoso.example", None, "Contoso.Example")
    assert (parts.key_name, parts.key, parts.entity_path) == ("k", "s3cr3t+/=", "orders")
    assert parts.namespace == "contoso"
    assert not parts.is_emulator
    parts.require_credential()


@pytest.mark.parametrize(
    "text",
    [
        f"Endpoint=sb://contoso.servicebus.windows.net/;{KEY}",
        f"Endpoint=sb://contoso.servicebus.windows.net/;{KEY};EntityPath=orders;",
        f"Endpoint=sb://localhost:5672;{KEY};UseDevelopmentEmulator=true",
        "Endpoint=sb://h.example/;SharedAccessSignature=SharedAccessSignature sr=a&sig=b&se=5",
    ],
)
def test_connection_string_is_read_as_the_sdk_reads_it(text):
    ours, theirs = parse_connection_string(text), sdk_parse(text)
    assert ours.authority == theirs.fully_qualified_namespace
    assert ours.entity_path == theirs.entity_path
    assert ours.key_name == theirs.shared_access_key_name
    assert ours.key == theirs.shared_access_key
    assert ours.signature == theirs.shared_access_signature


@pytest.mark.parametrize(
    ("value", "is_emulator"),
    [("true", True), (" true ", True), ("True", False), ("1", False), ("false", False)],
)
def test_emulator_mode_is_the_lower_case_word_as_in_the_sdk(value, is_emulator):
    text = f"Endpoint=sb://[::1]:5672/;{KEY};UseDevelopmentEmulator={value}"
    parts = parse_connection_string(text)
    assert parts.is_emulator is is_emulator
    assert (parts.host, parts.port, parts.namespace) == ("::1", 5672, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no '='"),
        ("s3cr3t", "has no '='"),
        (f"{KEY};s3cr3t", "has no '='"),
        (KEY, "Endpoint is missing"),
        (f"Endpoint=;{KEY}", "Endpoint is missing"),
        (f"Endpoint=sb:///;{KEY}", "no host"),
        (f"Endpoint=sb://h:s3cr3t@;{KEY}", "no host"),
        (f"Endpoint=sb://h:s3cr3t;{KEY}", "not a number"),
    ],
)
def test_malformed_connection_string_is_reported_without_its_secrets(text, problem):
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        parse_connection_string(text)
    assert "s3cr3t" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rest", ["", ";SharedAccessKeyName=k", ";SharedAccessKey=s3cr3t"])
def test_missing_credential_is_reported_by_name(rest):
    parts = parse_connection_string(f"Endpoint=sb://h/{rest}")
    with pytest.raises(ValueError, match="SharedAccessKeyName and SharedAccessKey"):
        parts.require_credential()


def test_secrets_do_not_show_in_the_repr():
    parts = parse_connection_string(f"Endpoint=sb://h/;{KEY};SharedAccessSignature=s1gn")
    assert "s3cr3t" not in repr(parts)
    assert "s1gn" not in f"{parts!r} {parts}"
    assert "'h'" in repr(parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Endpoint=sb://h/;{KEY}", True),
        (f"{KEY}; endpoint = sb://h/", True),
        (f"HostName=sb://h/;{KEY}", True),
        ("contoso.servicebus.windows.net", False),
        ("MY_ENDPOINT", False),
        ("my-endpoint=x", False),
    ],
)
def test_connection_string_is_told_from_a_host_or_a_variable(text, expected):
    assert is_connection_string(text) is expected


@pytest.mark.parametrize("is_emulator", [True, False])
def test_formatted_connection_string_is_read_back(is_emulator):
    named = parse_connection_string(
        format_connection_string("[::1]:99", key_name="k", key="v=", is_emulator=is_emulator)
    )
    assert (named.authority, named.key_name, named.key) == ("[::1]:99", "k", "v=")
    assert named.is_emulator is is_emulator
    signed = parse_connection_string(format_connection_string("h.example", signature="a=b&c"))
    assert (signed.host, signed.signature) == ("h.example", "a=b&c")


def test_replacing_the_endpoint_changes_nothing_else():
    text = f"{KEY};Endpoint=sb://contoso.example/;EntityPath=orders"
    assert replace_endpoint(text, "127.0.0.1:9") == (
        f"{KEY};Endpoint=sb://127.0.0.1:9;EntityPath=orders"
    )


@pytest.mark.parametrize(
    ("size", "operations"), [(0, 1), (1, 1), (65536, 1), (65537, 2), (98304, 2), (131073, 3)]
)
def test_each_64_kb_is_one_operation(size, operations):
    assert billable(size) == operations


@pytest.mark.parametrize("sync", [True, False])
def test_file_is_replaced_whole(tmp_path, sync):
    path = tmp_path / "state.json"
    write_atomically(path, "first", sync=sync)
    write_atomically(str(path), b"second", sync=sync)
    assert path.read_bytes() == b"second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_failed_write_keeps_the_old_content_and_leaves_no_temporary_file(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    write_atomically(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new", sync=True)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_private_file_is_never_readable_by_others(tmp_path):
    path = tmp_path / "key.pem"
    path.write_text("old")
    path.chmod(0o644)
    write_atomically(path, "new", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_folder_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing" / "file", "x")


def test_shared_formats_have_no_second_implementation():
    source = Path(names.__file__).parent
    patterns = {
        "backlog path": r"[\"'/]x-servicebus-transfer",
        "ping content type": r"vnd\.ms-servicebus-ping",
        "connection string": r"(?i)f[\"']Endpoint=|endpoint=\\w|split\([\"'];[\"']\)",
        "address": r"ipaddress\.ip_address",
        "atomic write": r"\.replace\((self\.)?_?(path|final|shim)\)|os\.replace|mkstemp",
    }
    # Other questions: is this address a loopback one, does a certificate or an Origin name it.
    allowed = {
        "broker/settings.py", "broker/server/tls.py", "broker/server/origins.py",
        "dashboard/guard.py",
    }  # fmt: skip
    found = []
    for path in sorted(source.rglob("*.py")):
        name = str(path.relative_to(source))
        if name == "names.py":
            continue
        code = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text())
        for what, pattern in patterns.items():
            if re.search(pattern, code) and not (what == "address" and name in allowed):
                found.append((what, name))
    assert found == []
