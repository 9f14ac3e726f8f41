"""Write the sync twin of the hand-written async shells and of their tests.

Every package `_async` below `src/pairbus` and `tests` gives a package `_sync` beside it. The script
works on tokens: it drops `async` and `await`, and renames from the table below. Comments survive.
Code that differs in more than a name lives in `pairbus/runtime` and, for pairing alone, in
`pairbus/pairing/runtime.py` and the modules it names, in pairs.
"""

import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TWINS = {
    source.relative_to(ROOT).as_posix(): (source.parent / "_sync").relative_to(ROOT).as_posix()
    for tree in ("src/pairbus", "tests")
    for source in sorted((ROOT / tree).rglob("_async"))
}
NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "AEvent": "Event",
    "AGuard": "Guard",
    "ALock": "Lock",
    "AWatch": "Watch",
    "AsyncCondition": "Condition",
    "AsyncEvent": "Event",
    "AsyncItemPaged": "ItemPaged",
    "AsyncIterator": "Iterator",
    "AsyncLock": "Lock",
    "AsyncRuntime": "Runtime",
    "AsyncStream": "Stream",
    "AsyncTask": "Task",
    "AsyncioRuntime": "ThreadRuntime",
    "_async": "_sync",
    "aabandonable": "abandonable",
    "acheck_cancelled": "check_cancelled",
    "ablocking": "blocking",
    "aon_drop": "on_drop",
    "aon_fork": "on_fork",
    "aio_admin_client": "admin_client",
    "aio_credential": "credential",
    "aresolve": "resolve",
    "asleep": "sleep",
    "aspawn": "spawn",
    "asynccontextmanager": "contextmanager",
}
# Dotted names in code, and words in docstrings and comments.
TEXT = [
    (re.compile(r"\bazure\.servicebus\.aio\b"), "azure.servicebus"),
    (re.compile(r"\bazure\.core\.async_paging\b"), "azure.core.paging"),
    (re.compile(r"\bpairbus\.aio\b"), "pairbus"),
    (re.compile(r"\bpairbus\.client\.aio\b"), "pairbus.client"),
    (re.compile(r"`await pair_namespace"), "`pair_namespace"),
    (re.compile(r"^( *(?:>>>|\.\.\.) .*?)\b(?:async|await) ", re.MULTILINE), r"\1"),
    (re.compile(r"\bAwaitable\[([^\[\]]+)\]"), r"\1"),
    (re.compile(r"\bCoroutine\[Any, Any, ([^\[\]]+)\]"), r"\1"),
]


def convert(text: str, origin: str) -> str:
    """The sync twin of `text`; the first line says where it came from."""
    for pattern, replacement in TEXT:
        text = pattern.sub(replacement, text)
    out: list[str] = []
    row, column = 1, 0
    skip_space = False
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        (start_row, start_column), (end_row, end_column) = token.start, token.end
        if start_row > row:
            out.append(_between(lines, row, column, start_row))
            row, column = start_row, 0
        gap = lines[start_row - 1][column:start_column] if start_row <= len(lines) else ""
        out.append(gap.lstrip(" ") if skip_space else gap)
        skip_space = False
        word = token.string
        if token.type == tokenize.NAME and word in ("async", "await"):
            skip_space = True
        elif token.type == tokenize.NAME:
            out.append(NAMES.get(word, word))
        else:
            out.append(word)
        row, column = end_row, end_column
    body = "".join(out)
    return f"# generated from {origin} by tools/gen_unasync.py; edit that one\n" + body


def _between(lines: list[str], row: int, column: int, until: int) -> str:
    return lines[row - 1][column:] + "".join(lines[row : until - 1])


def outputs() -> dict[Path, str]:
    """Each generated file and its whole text."""
    return {
        Path(twin) / path.name: convert(path.read_text(), f"{source}/{path.name}")
        for source, twin in TWINS.items()
        for path in sorted((ROOT / source).glob("*.py"))
    }


def orphans() -> list[Path]:
    """Generated files whose source is gone."""
    return [
        path.relative_to(ROOT)
        for source, twin in TWINS.items()
        for path in sorted((ROOT / twin).glob("*.py"))
        if not (ROOT / source / path.name).exists()
    ]
