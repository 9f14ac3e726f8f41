"""The walks through the code name files and functions that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"`([\w/]+\.py): ([\w.]+)`", PAGE)


def defined_in(path):
    """The names of a module's functions and classes, methods as `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{method.name}"
                for method in node.body
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


@pytest.mark.parametrize(("file", "name"), STEPS, ids=[f"{file}:{name}" for file, name in STEPS])
def test_a_step_of_the_walks_is_in_the_code(file, name):
    assert name in defined_in(ROOT / "src" / "pairbus" / file)


def test_every_package_is_described():
    packages = {path.parent.name for path in (ROOT / "src" / "pairbus").glob("*/__init__.py")} - {
        "aio",
        "runtime",
    }
    described = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert packages - described == set()


def test_every_module_beside_the_packages_is_described():
    modules = {path.stem for path in (ROOT / "src" / "pairbus").glob("[a-z]*.py")}
    assert {name for name in modules if f"`{name}`" not in PAGE} == set()


def test_glossary_is_in_alphabetical_order():
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text()
    terms = [term.lower() for term in re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)[1:]]
    assert len(terms) > 70
    assert terms == sorted(terms)
