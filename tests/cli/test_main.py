"""The command line's frame: help, errors, exit codes."""

import os
import socket
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from pairbus.cli import main
from pairbus.cli.errors import ExitCode, UserError, require
from pairbus.cli.main import cli
from pairbus.extras import MissingExtraError
from pairbus.monitoring.formatting import mask


def run(*args: str, **kwargs):
    return CliRunner().invoke(cli, args, **kwargs)


def failing(exc: BaseException) -> click.Command:
    @click.command("failing")
    def command() -> None:
        raise exc

    return command


@pytest.fixture
def break_with(monkeypatch):
    """Make the noun `completion` a command that raises."""

    def arrange(exc: BaseException):
        monkeypatch.setattr(main.Root, "get_command", lambda self, ctx, name: failing(exc))

    return arrange


def test_help_lists_the_nouns_without_importing_them():
    result = run("--help")
    assert result.exit_code == 0
    assert "completion" in result.output
    assert "Exit codes" in result.output


def test_version_is_the_package_version():
    from pairbus import __version__

    assert run("--version").output.strip().endswith(__version__)


def test_unknown_noun_is_a_usage_error_in_one_line():
    result = run("frobnicate")
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.count("\n") == 1
    assert "frobnicate" in result.stderr


def test_misspelt_noun_is_told_the_nearest():
    result = run("backlgo", "list")
    assert result.exit_code == ExitCode.USAGE
    assert "Did you mean 'backlog'?" in result.stderr


def test_broker_with_a_wrong_name_is_an_error_without_advice_about_its_key():
    result = run("broker", "run", "--namespace", "a/b")
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr == "pairbus: 'a/b' is not a valid name of a namespace\n"


def test_broker_with_an_empty_key_or_an_impossible_origin_is_an_error_in_one_line():
    result = run("broker", "run", "--port", "0", "--key", "")
    assert (result.exit_code, result.stderr) == (ExitCode.USAGE, "pairbus: the key is empty\n")
    result = run("broker", "run", "--port", "0", "--allow-origin", "app.example")
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith("pairbus: 'app.example' is not an allowed origin: ")
    assert result.stderr.count("\n") == 1


def test_wrong_tier_in_the_environment_is_an_error_in_one_line():
    result = run("broker", "run", "--port", "0", env={"PAIRBUS_BROKER_TIER": "gold"})
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr == "pairbus: 'gold' is not a tier: use standard or premium\n"


def test_bundle_that_cannot_be_written_is_an_error_with_its_name(tmp_path):
    file = tmp_path / "none" / "pairbus.zip"
    result = run("spark", "bundle", str(file))
    assert result.exit_code == ExitCode.ERROR
    assert result.stderr == f"pairbus: {file} cannot be written: No such file or directory\n"


def test_option_without_its_value_names_the_help_of_its_command():
    result = run("syphon", "run", "--max-messages")
    assert result.exit_code == ExitCode.USAGE
    assert "(see pairbus syphon run --help)" in result.stderr
    assert "(see pairbus --help)" in run("--config").stderr


def test_user_error_is_one_line_and_exit_code_three(break_with):
    break_with(UserError("queue orders does not exist", "pairbus backlog list"))
    result = run("completion")
    assert result.exit_code == ExitCode.ERROR
    assert result.stderr == "pairbus: queue orders does not exist. Try: pairbus backlog list\n"


def test_unexpected_error_shows_no_traceback_without_debug(break_with):
    break_with(KeyError("boom"))
    result = run("completion")
    assert result.exit_code == ExitCode.BUG
    assert "Traceback" not in result.output
    assert "KeyError" in result.stderr


def test_debug_anywhere_on_the_line_shows_the_traceback(break_with):
    break_with(KeyError("boom"))
    assert "Traceback" in run("completion", "--debug").stderr
    assert "Traceback" in run("--debug", "completion").stderr


def test_missing_module_names_the_extra_that_installs_it(break_with):
    break_with(ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql"))
    result = run("completion")
    assert result.exit_code == ExitCode.MISSING_EXTRA
    assert "pip install 'pairbus[spark]'" in result.stderr


def test_missing_module_behind_another_error_is_told_all_the_same(break_with):
    error = UserError("reading the ledger", "check the path")
    error.__cause__ = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow.fs")
    break_with(error)
    result = run("completion")
    assert result.exit_code == ExitCode.MISSING_EXTRA
    assert (
        result.stderr == "pairbus: this needs the package pyarrow: pip install 'pairbus[ledger]'\n"
    )


def test_require_tells_a_missing_package_from_a_broken_one():
    with pytest.raises(MissingExtraError, match=r"pip install 'pairbus\[web\]'"):
        require("no_such_package_here", "web")


def test_errors_of_service_bus_are_told_with_a_hint(break_with):
    from azure.servicebus.exceptions import ServiceBusConnectionError

    break_with(ServiceBusConnectionError(message="Endpoint=sb://x;SharedAccessKey=topsecret=;a"))
    result = run("completion")
    assert result.exit_code == ExitCode.ERROR
    assert "network connection to the namespace" in result.stderr
    assert "topsecret" not in result.output


def test_broken_connection_is_no_success(break_with):
    break_with(BrokenPipeError(32, "Broken pipe"))
    result = run("completion")
    assert result.exit_code == ExitCode.ERROR
    assert "Broken pipe" in result.stderr


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_output_that_its_reader_has_closed_is_a_success(kind):
    ends = os.pipe() if kind == "pipe" else [end.detach() for end in socket.socketpair()]
    reader, writer = ends
    os.close(reader)
    command = [sys.executable, "-m", "pairbus", "completion", "bash"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (ExitCode.OK, b"")


def test_interrupt_ends_with_130(break_with):
    break_with(KeyboardInterrupt())
    assert run("completion").exit_code == ExitCode.INTERRUPTED


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed_for_each_shell(shell):
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_PAIRBUS_COMPLETE" in result.output


@pytest.mark.parametrize(
    "text",
    [
        "Endpoint=sb://h/;SharedAccessKeyName=k;SharedAccessKey=s3cr3t+/=;EntityPath=q",
        "SharedAccessSignature sr=x&sig=s3cr3t%3D&se=1&skn=k",
        "Authorization: Bearer s3cr3t",
        "SharedAccessSignature=SharedAccessSignature sr=s3cr3t&sig=s3cr3t",
    ],
)
def test_secrets_are_masked_wherever_shown(text):
    assert "s3cr3t" not in mask(text)
    assert "***" in mask(text)
