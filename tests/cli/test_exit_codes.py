"""A wrong command line ends with 64, a package that is missing with 69, a failed command with 3."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pairbus.cli import spark_job
from pairbus.cli.errors import ExitCode
from pairbus.cli.main import NOUNS, cli, load
from pairbus.cli.options import SPAN, Scaled
from pairbus.spark.java import JavaNotFoundError

NUMBERS = (click.types.IntParamType, click.types.FloatParamType, Scaled)
PRIMARY, SECONDARY = (
    f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=b;"
    "UseDevelopmentEmulator=true"
    for port in (1, 2)
)
PAIR = {
    "PAIRBUS_PRIMARY": PRIMARY,
    "PAIRBUS_SECONDARY": SECONDARY,
    "PAIRBUS_PRIMARY_NAMESPACE": "contoso",
}


def commands(command, path=()):
    """Yield each command below `command` with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        below = {noun: load(noun) for noun in NOUNS} if command is cli else command.commands
        for name, verb in below.items():
            yield from commands(verb, (*path, name))


NUMERIC = [
    (*path, option.opts[0])
    for path, command in commands(cli)
    for option in command.params
    if isinstance(option, click.Option) and isinstance(option.type, NUMBERS)
]


def run(*arguments: str, **env: str):
    return CliRunner().invoke(cli, arguments, env={**PAIR, **env})


@pytest.mark.parametrize("words", NUMERIC, ids=" ".join)
def test_option_that_takes_a_number_refuses_anything_else(words):
    result = run(*words, "nan")
    assert result.exit_code == ExitCode.USAGE
    assert words[-1] in result.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(".5", 0.5), ("5.", 5), ("1e3", 1000), ("1E-1", 0.1), ("+2", 2), (".5m", 30), ("1e1 s", 10)],
)
def test_duration_takes_every_form_of_a_plain_number(text, seconds):
    assert SPAN.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["inf", "-inf", "infinity", "nan", "-1", "1e400", ".", "e3", ""])
def test_duration_is_finite_and_not_negative(text):
    with pytest.raises(click.BadParameter):
        SPAN.convert(text, None, None)


@pytest.mark.parametrize("path", [path for path, _ in commands(cli)], ids=" ".join)
def test_misspelt_option_is_a_usage_error(path):
    result = run(*path, "--frobnicate")
    assert result.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "arguments",
    [
        ["cost", "estimate", "--tier", "gold"],
        ["cost", "estimate", "--prices", "/none.toml"],
        ["cost", "report", "{tmp}", "--tier", "gold"],
        ["cost", "watch", "{tmp}", "--prices", "/none.toml"],
        ["account", "{tmp}", "--tier", "gold"],
        ["drill", "--dry-run", "--tier", "gold"],
        ["drill", "--drain-timeout", "-1", "--dry-run"],
        ["check", "--outage", "-1"],
        ["dashboard", "--refresh", "-1"],
        ["dashboard", "--refresh", "2d"],
        ["broker", "run", "--entities", "/none.json"],
        ["syphon", "run", "--max-duration", "-1"],
        ["syphon", "run", "--long-poll", "0s"],
        ["syphon", "run", "--transform", "no_such_module:function"],
        ["syphon", "run", "--ca-file", "/none.pem"],
        ["syphon", "run", "--to", "NO_SUCH_VARIABLE", "--ledger", "{tmp}"],
        ["pair", "status", "--secondary", "NO_SUCH_VARIABLE"],
        ["--config", "/none.toml", "pair", "status"],
        ["completion"],
    ],
    ids=" ".join,
)
def test_wrong_value_on_the_command_line_is_a_usage_error(tmp_path, arguments):
    result = run(*[word.format(tmp=tmp_path) for word in arguments])
    assert result.exit_code == ExitCode.USAGE
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["backlog", "list"],
        ["ledger", "show", "{tmp}"],
        ["pair", "end-draining", "orders", "--ledger", "{tmp}/ledger"],
        ["syphon", "status", "--checkpoint", "{tmp}/none"],
        ["syphon", "run", "--checkpoint", "{tmp}/syphon"],
    ],
    ids=" ".join,
)
def test_command_that_is_right_and_cannot_be_done_ends_with_three(tmp_path, arguments):
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "ledger.json").write_text('{"format": "pairbus ledger", "version": 1}')
    result = run(*[word.format(tmp=tmp_path) for word in arguments])
    assert result.exit_code == ExitCode.ERROR
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["cost", "report", "{tmp}"], ["spark", "java-home"]])
def test_missing_java_is_a_missing_package_for_every_command(tmp_path, monkeypatch, arguments):
    def ensure_java():
        raise JavaNotFoundError("Spark needs Java: pip install 'pairbus[spark]'")

    monkeypatch.setattr("pairbus.spark.java.ensure_java", ensure_java)
    monkeypatch.setattr("pairbus.spark.session.ensure_java", ensure_java)
    (tmp_path / "ledger.json").write_text('{"format": "pairbus ledger", "version": 1}')
    result = run(*[word.format(tmp=tmp_path) for word in arguments])
    assert result.exit_code == ExitCode.MISSING_EXTRA
    assert "pip install" in result.stderr


def test_job_with_an_unknown_name_is_a_usage_error():
    script = str(Path(spark_job.__file__))
    command = [sys.executable, script, "drain"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == (
        "pairbus: the first argument must be one of syphon, cost, reconcile, got 'drain'\n"
    )
