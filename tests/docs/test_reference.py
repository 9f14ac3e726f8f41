"""Every option, event, error, command and exit code is in the reference, and no link is dead."""

import dataclasses
import re
import tomllib
from pathlib import Path

import click
import pytest

from pairbus import events, exceptions, options
from pairbus.cli.errors import ExitCode
from pairbus.cli.main import NOUNS, cli
from pairbus.monitoring import metrics

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"


def commands(command=cli, path=("pairbus",)):
    ctx = click.Context(command, info_name=path[-1])
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            yield from commands(command.get_command(ctx, name), (*path, name))


ALL_COMMANDS = dict(commands())


@pytest.mark.parametrize("name", options.__all__)
def test_every_option_is_in_the_reference_with_its_meaning(name):
    text = (REFERENCE / "options.md").read_text()
    assert f"## {name}" in text
    for field in dataclasses.fields(getattr(options, name)):
        (row,) = [r for r in text.split(f"## {name}")[1].split("\n## ")[0].splitlines()
                  if r.startswith(f"| `{field.name}` |")]  # fmt: skip
        assert len(row.split("|")[3].strip()) > 10, f"{name}.{field.name} is not explained"


@pytest.mark.parametrize("name", [n for n in events.__all__ if n != "Event"])
def test_every_event_is_in_the_reference(name):
    assert f"## {name}\n" in (REFERENCE / "events.md").read_text()


def test_every_metric_is_in_the_reference():
    text = (REFERENCE / "metrics.md").read_text()
    for metric in (*metrics.STATUS_METRICS, *metrics.EVENT_METRICS):
        assert f"| `{metric.exposed_name}` | {metric.kind} |" in text


@pytest.mark.parametrize("name", exceptions.__all__)
def test_every_error_is_in_the_reference(name):
    assert f"### {name}\n" in (REFERENCE / "errors.md").read_text()


@pytest.mark.parametrize("path", ALL_COMMANDS, ids=" ".join)
def test_every_command_is_in_the_reference(path):
    assert re.search(
        rf"^#+ {re.escape(' '.join(path))}$", (REFERENCE / "cli.md").read_text(), re.MULTILINE
    )


@pytest.mark.parametrize("path", ALL_COMMANDS, ids=" ".join)
def test_help_of_every_command_is_documentation_with_an_example(path):
    command = ALL_COMMANDS[path]
    assert command.help, "no help"
    assert re.search(r"Examples?[ :(]", command.help), "no example"
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{parameter.opts[0]} is not explained"


@pytest.mark.parametrize(
    "path", [p for p, c in ALL_COMMANDS.items() if isinstance(c, click.Group)], ids=" ".join
)
def test_list_of_commands_cuts_no_sentence_off(path):
    context = click.Context(ALL_COMMANDS[path], info_name=path[-1], terminal_width=80)
    lines = ALL_COMMANDS[path].get_help(context).splitlines()
    assert [line for line in lines if line.endswith("...") and "Usage" not in line] == []


def test_every_noun_has_its_module():
    assert sorted(cli.list_commands(click.Context(cli))) == sorted(NOUNS)


def test_every_exit_code_is_in_the_reference_and_in_the_help():
    text = (REFERENCE / "cli.md").read_text()
    for code in ExitCode:
        assert re.search(rf"^    {code.value} ", text, re.MULTILINE)


def test_every_environment_variable_of_the_code_is_documented():
    code = "".join(p.read_text() for p in (ROOT / "src" / "pairbus").rglob("*.py"))
    documented = "".join(p.read_text() for p in DOCS.rglob("*.md"))
    named = set(re.findall(r"\bPAIRBUS_[A-Z][A-Z_]*[A-Z]\b", code))
    assert {name for name in named if name not in documented} == set()


def test_readme_and_docs_start_with_the_install_line_and_the_size_of_every_extra():
    readme = (ROOT / "README.md").read_text()
    section = readme.split("\n## ")[1]
    assert section.startswith("Install\n")
    assert "pip install 'pairbus[all]'" in section
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in extras["optional-dependencies"]:
        assert re.search(rf"^\| `{extra}` \| .+ \| \d+ MB \|$", section, re.MULTILINE), extra
    assert '{include} ../README.md\n:start-after: "## Install"' in (DOCS / "index.md").read_text()


def test_every_marker_is_documented():
    import tomllib

    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())
    markers = [
        re.split(r"[:(]", m)[0] for m in configured["tool"]["pytest"]["ini_options"]["markers"]
    ]
    text = (DOCS.parent / "CONTRIBUTING.md").read_text()
    assert [m for m in markers if f"`{m}`" not in text] == []


def pages():
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (page.parent / target).resolve()
        found = path.exists() or path.with_suffix(".md").exists()
        assert found or Path(str(path) + ".md").exists(), f"{page.name}: {target}"


def test_site_needs_nothing_from_another_host():
    for page in (DOCS / "_static").glob("*.js"):
        assert "http" not in page.read_text()
