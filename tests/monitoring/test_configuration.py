"""Pairs from the file, the environment and the options."""

import click
import pytest
from click.testing import CliRunner

from pairbus.cli.options import ledger_argument, pair_options
from pairbus.monitoring.configuration import resolve_pair
from pairbus.monitoring.endpoints import ConfigurationError, Pair

CS = "Endpoint=sb://{0}.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=s3cr3t="


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in ("PRIMARY", "SECONDARY", "PRIMARY_NAMESPACE", "LEDGER", "CONFIG", "CHECKPOINT"):
        monkeypatch.delenv(f"PAIRBUS_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, text, name="pairbus.toml"):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_pair_comes_from_the_file_in_the_working_folder(clean):
    write(clean, f'[pairs.orders]\nprimary = "{CS.format("contoso")}"\nledger = "/l"\n')
    pair = resolve_pair()
    assert (pair.name, pair.primary_namespace, pair.ledger) == ("orders", "contoso", "/l")


def test_file_in_the_users_configuration_folder_counts_too(clean):
    write(clean, '[pairs.a]\nprimary_namespace = "alpha"\n', "xdg/pairbus/config.toml")
    assert resolve_pair().primary_namespace == "alpha"


def test_value_may_be_the_name_of_an_environment_variable(clean, monkeypatch):
    monkeypatch.setenv("CONTOSO", CS.format("contoso"))
    write(clean, '[pairs.orders]\nprimary = "CONTOSO"\n')
    assert resolve_pair().require_primary().host == "contoso.servicebus.windows.net"


def test_variable_that_is_not_set_is_a_clear_error(clean):
    write(clean, '[pairs.orders]\nprimary = "NOT_SET_HERE"\n')
    with pytest.raises(ConfigurationError, match="NOT_SET_HERE, which is not set"):
        resolve_pair()


def test_variable_that_holds_the_name_of_a_variable_is_a_clear_error(monkeypatch):
    monkeypatch.setenv("CONTOSO", "CONTOSO")
    with pytest.raises(ConfigurationError, match=r"\$CONTOSO is neither a connection string"):
        resolve_pair(primary="CONTOSO")


def test_options_go_before_the_environment_and_that_before_the_file(clean, monkeypatch):
    write(clean, f'[pairs.orders]\nprimary = "{CS.format("file")}"\nledger = "/file"\n')
    assert resolve_pair().primary_namespace == "file"
    monkeypatch.setenv("PAIRBUS_PRIMARY", CS.format("env"))
    assert resolve_pair().primary_namespace == "env"
    assert resolve_pair(primary=CS.format("option")).primary_namespace == "option"
    assert resolve_pair().ledger == "/file"


def test_pair_asked_for_by_name_is_not_overridden_by_the_environment(clean, monkeypatch):
    write(clean, f'[pairs.orders]\nprimary = "{CS.format("file")}"\n')
    monkeypatch.setenv("PAIRBUS_PRIMARY", CS.format("env"))
    assert resolve_pair("orders").primary_namespace == "file"


def test_default_chooses_among_several_pairs(clean):
    write(clean, 'default="b"\n[pairs.a]\nledger="/a"\n[pairs.b]\nledger="/b"\n')
    assert resolve_pair().ledger == "/b"
    assert resolve_pair("a").ledger == "/a"
    with pytest.raises(ConfigurationError, match=r"no pair is called 'c'.*a, b"):
        resolve_pair("c")


def test_several_pairs_without_a_default_are_asked_for_by_name(clean):
    write(clean, '[pairs.b]\nledger="/b"\n[pairs.a]\nledger="/a"\n')
    with pytest.raises(ConfigurationError, match=r"which pair: a, b\?.*--pair a"):
        resolve_pair().require_ledger()
    with pytest.raises(ConfigurationError, match="which pair: a, b"):
        resolve_pair().require_secondary()
    assert resolve_pair(ledger="/given").require_ledger() == "/given"


def test_a_pair_by_name_without_any_pair_says_where_to_write_one(clean):
    with pytest.raises(ConfigurationError, match=r"no pair is called 'c'.*add \[pairs\.c\]"):
        resolve_pair("c")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("pairs = 3", "must be tables"),
        ("[pairs.a]\nprimery = 1", "primery"),
        ("colour = 1", "colour"),
        ("[", "not TOML"),
        ('default = "x"', "names no pair"),
        ("[pairs.a]\nbacklog_queue_count = 0", "at least 1"),
        ("[pairs.a]\nbacklog_queue_count = [1]", "backlog_queue_count must be a number"),
        ("[pairs.a]\nledger = 3", "ledger must be a string"),
        ('default = ["a"]', "default must be a string"),
    ],
)
def test_mistake_in_the_file_is_told_by_name(clean, text, match):
    write(clean, text)
    with pytest.raises(ConfigurationError, match=match):
        resolve_pair()


def test_explicit_file_that_is_missing_is_an_error(clean, monkeypatch):
    monkeypatch.setenv("PAIRBUS_CONFIG", "nowhere.toml")
    with pytest.raises(ConfigurationError, match=r"nowhere.toml does not exist"):
        resolve_pair()


def test_folder_in_place_of_the_file_is_told(clean, monkeypatch):
    monkeypatch.setenv("PAIRBUS_CONFIG", str(clean))
    with pytest.raises(ConfigurationError, match="is not a file"):
        resolve_pair()


def test_primary_at_an_address_needs_a_name():
    pair = resolve_pair(primary="Endpoint=sb://127.0.0.1:5672;UseDevelopmentEmulator=true")
    with pytest.raises(ConfigurationError, match="--primary-namespace"):
        _ = pair.primary_namespace


def test_missing_pieces_are_asked_for_by_name():
    with pytest.raises(ConfigurationError, match="PAIRBUS_SECONDARY"):
        Pair().require_secondary()
    with pytest.raises(ConfigurationError, match="PAIRBUS_LEDGER"):
        Pair().require_ledger()
    with pytest.raises(ConfigurationError, match=r"no primary namespace is given.*PAIRBUS_PRIMARY"):
        _ = Pair().primary_namespace


def test_number_of_queues_comes_from_the_environment_too(clean, monkeypatch):
    monkeypatch.setenv("PAIRBUS_BACKLOG_QUEUE_COUNT", "2")
    assert resolve_pair().backlog_queue_count == 2


@pytest.mark.parametrize(
    "text",
    [
        "Endpoint=sb://contoso-dr.example/;SharedAccessKey",
        "Endpoint=sb://contoso-dr.example/;SharedAccessKeyName=k",
        "Endpoint=sb://127.0.0.1:5672;SharedAccessKey;UseDevelopmentEmulator=true",
    ],
)
def test_mistake_in_a_connection_string_is_told_with_its_place(text):
    pair = resolve_pair(secondary=text)
    secondary = pair.require_secondary()
    for make in (secondary.client, secondary.admin, secondary.bulk_connection):
        with pytest.raises(ConfigurationError, match="--secondary is not a valid connection") as e:
            make()
        assert ".. Try" not in str(e.value)


def test_secret_never_shows_in_a_pair():
    pair = resolve_pair(primary=CS.format("contoso"))
    assert "s3cr3t" not in f"{pair} {pair!r} {pair.primary} {pair.primary!r}"


def test_decorators_hand_the_command_what_it_needs(clean, monkeypatch):
    @click.command()
    @pair_options
    def show(pair: Pair) -> None:
        click.echo(f"{pair.primary_namespace} {pair.require_ledger()}")

    @click.command()
    @ledger_argument
    def where(ledger: str) -> None:
        click.echo(ledger)

    result = CliRunner().invoke(show, ["--primary", CS.format("x"), "--ledger", "/l"])
    assert result.output == "x /l\n"
    monkeypatch.setenv("PAIRBUS_LEDGER", "/env")
    assert CliRunner().invoke(where, []).output == "/env\n"
    assert CliRunner().invoke(where, ["/given"]).output == "/given\n"
    assert CliRunner().invoke(where, ["--ledger", "/option"]).output == "/option\n"
