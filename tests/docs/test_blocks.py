"""What the documentation shows can be typed: imports are there, commands have these options."""

import importlib
import re
import shlex

import click
import pytest

from pairbus.cli.main import cli
from tests.docs import pages
from tests.docs.pages import PAGES, SHELL


def blocks(*languages: str) -> list[tuple[str, str]]:
    """Code blocks of all pages: the page, and the text."""
    return [(b.page, b.text) for page in PAGES for b in pages.blocks(page, *languages)]


def imports() -> list[tuple[str, str, str]]:
    found = []
    for page, text in blocks("python"):
        for module, names in re.findall(
            r"^\s*from (pairbus[\w.]*) import \(?([\w, \n]+)", text, re.MULTILINE
        ):
            line = names if names.startswith("\n") else names.split("\n")[0]
            found += [(page, module, name.strip()) for name in line.split(",") if name.strip()]
    return sorted(set(found))


@pytest.mark.parametrize(("page", "module", "name"), imports())
def test_every_import_that_a_page_shows_works(page, module, name):
    imported = importlib.import_module(module)
    assert hasattr(imported, name) or importlib.import_module(f"{module}.{name}")


def command_lines() -> list[tuple[str, str]]:
    found = []
    for page, text in blocks(*SHELL):
        for line in text.replace("\\\n", " ").splitlines():
            typed = line.removeprefix("$ ").removesuffix("&").strip()
            if typed.startswith("pairbus "):
                found.append((page, typed))
    return sorted(set(found))


def understand(words: list[str]) -> None:
    """Parse a command's words as the command line does; a usage error is raised."""
    command: click.Command = cli
    context = click.Context(cli, info_name="pairbus")
    while isinstance(command, click.Group):
        if command.invoke_without_command and words[0].startswith("-"):
            break  # its own options; a verb would come first
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.parse_args(context, words)


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_every_command_that_a_page_shows_is_understood(page, line):
    understand(shlex.split(line, comments=True)[1:])


@pytest.mark.parametrize(("page", "text"), blocks(*SHELL))
def test_no_address_is_eaten_by_the_shell(page, text):
    assert not re.search(r"(^|\s)http[^\s']*\$\w", text), f"{page}: quote it"
