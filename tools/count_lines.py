"""Count the hand-written lines of code below src, without blanks, comments and docstrings."""

import ast
import tokenize
from collections import Counter
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(path: Path) -> int:
    """How many lines of a file hold code."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in NO_CODE:
                code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def main() -> None:
    """Print the lines of each package and their sum."""
    lines: Counter[str] = Counter()
    for path in sorted(SRC.rglob("*.py")):
        if "_sync" not in path.parts:
            parts = path.relative_to(SRC).parts
            lines[parts[1] if len(parts) > 2 else "vocabulary"] += code_lines(path)
    for package, count in lines.most_common():
        print(f"{count:7,} {package}")
    print(f"{lines.total():7,} in all")


if __name__ == "__main__":
    main()
