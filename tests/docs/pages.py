"""The pages of the documentation, their code blocks, and a reader who types them.

A block that no test runs has the reason in a comment on the line above it:
`<!-- not run: it installs packages -->`.
"""

import inspect
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "README.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in p.parts),
]
SHELL = ("sh", "shell", "console", "bash")
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n+)?"
    r"```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)

# Commands that run until they are stopped, and the words that tell their reader to go on.
STAYING = {
    "pairbus broker run": "ready: ",
    "pairbus dashboard": "Live page:",
    "pairbus syphon run": "forwarded|running|empty",
    "pairbus cost watch": "operations",
}
PREAMBLE = """
set -eu
await() {  # until the log of the last background process has the words
  for _ in $(seq 1200); do
    if grep -Eq "$1" "$2"; then return; fi
    if ! kill -0 $!; then cat "$2"; return 1; fi
    sleep 0.1
  done
  echo "no '$1' in two minutes:"; cat "$2"; return 1
}
"""
END = "--- end of block"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    not_run: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page in their order, in these languages."""
    text = page.read_text()
    return [
        Block(
            str(page.relative_to(ROOT)),
            text.count("\n", 0, found.start("text")),
            found["language"],
            found["text"],
            found["reason"] or "",
        )
        for found in FENCE.finditer(text)
        if found["language"] in languages
    ]


class Reader:
    """Types the blocks of a page in an empty folder: commands in one shell, Python in one scope.

    Args:
        folder: Where the reader works.
        replace: What a reader replaces by something of their own: ports, keys, folders.
        exit_codes: Commands (their beginning) that may end with these codes, as the page says.
        scope: The names that the page's Python takes for granted.
        fixture: Finds a pytest fixture by its name, for blocks that are tests.
    """

    def __init__(
        self,
        folder: Path,
        *,
        replace: Mapping[str, str] | None = None,
        exit_codes: Mapping[str, str] | None = None,
        scope: dict[str, Any] | None = None,
        fixture: Callable[[str], Any] | None = None,
    ) -> None:
        self.output = ""
        self.scope: dict[str, Any] = {}
        self._given = scope or {}
        self._folder = folder
        self._replace = {"/var/lib/pairbus": str(folder / "var"), **(replace or {})}
        self._exit_codes = exit_codes or {}
        self._fixture = fixture
        self._logs: list[Path] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {key: v for key, v in os.environ.items() if not key.startswith("PAIRBUS_")}
        kept["PAIRBUS_BROKER_TIER"] = os.environ.get("PAIRBUS_BROKER_TIER", "premium")
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={**kept, "PATH": path, "COLUMNS": "80"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.type(PREAMBLE)

    def read(self, page: str, *, until: str | None = None) -> str:
        """Type the blocks of a page, up to the one that has the text `until`; return the output."""
        for block in blocks(ROOT / page, *SHELL, "python"):
            if until is not None and until in block.text:
                break
            if block.not_run:
                continue
            text = block.text
            for theirs, ours in self._replace.items():
                text = text.replace(theirs, ours)
            if block.language == "python":
                self._execute(block, text)
            else:
                self.type(self._as_typed(block, text))
        return self.output

    def type(self, text: str) -> None:
        """Let the shell run these lines; a command that fails is an error with all output."""
        assert self._shell.stdin
        assert self._shell.stdout
        variables = self._folder / ".variables"
        # The lines must not read the rest of the script as their input.
        script = f"{{\n{text}\n}} </dev/null\nenv -0 >'{variables}'\necho '{END}'\n"
        try:
            self._shell.stdin.write(script)
            self._shell.stdin.flush()
        except BrokenPipeError:
            pass
        for line in self._shell.stdout:
            if line.rstrip("\n") == END:
                break
            self.output += line
        else:
            raise AssertionError(f"a command failed:\n{self.output}{self.logs()}")
        for pair in variables.read_text().split("\0"):
            name, _, value = pair.partition("=")
            if name.startswith("PAIRBUS_"):
                os.environ[name] = value

    def logs(self) -> str:
        """The output of the commands that go on."""
        return "".join(log.read_text() for log in self._logs)

    def close(self) -> None:
        """End every process that was started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._shell.pid, number)
            except ProcessLookupError:
                break
        assert self._shell.stdin
        assert self._shell.stdout
        self._shell.wait()
        for pipe in (self._shell.stdin, self._shell.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass

    def _as_typed(self, block: Block, text: str) -> str:
        lines = []
        for line in text.replace("\\\n", " ").splitlines():
            typed = line.removeprefix("$ ")
            staying = next((c for c in STAYING if typed.startswith(c)), None)
            expected = next((n for c, n in self._exit_codes.items() if typed.startswith(c)), None)
            if typed.startswith(("pairbus", "python", "curl", "kill")):
                lines.append("echo " + "'$ " + typed.replace("'", "'\\''") + "'")
            if expected is not None:
                typed = f"code=0; {typed} || code=$?; [[ $code == [{expected}] ]]"
            elif staying and "--until-empty" not in typed and "--dry-run" not in typed:
                log = self._folder / f"log-{block.line}-{len(lines)}"
                self._logs.append(log)
                typed = f"{typed.removesuffix('&')} >'{log}' 2>&1 &"
                typed += f" await '{STAYING[staying]}' '{log}'"
            lines.append(typed)
        return "\n".join(lines)

    def _execute(self, block: Block, text: str) -> None:
        self.scope |= self._given  # also after a block that has used such a name for itself
        before = set(self.scope)
        exec(compile(text, str(block), "exec"), self.scope)
        for name in set(self.scope) - before:
            if name.startswith("test_"):
                assert self._fixture
                wanted = inspect.signature(self.scope[name]).parameters
                self.scope[name](*[self._fixture(one) for one in wanted])
