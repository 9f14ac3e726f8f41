"""Write every generated file, or with --check say which are not current.

A generator is a module in this folder with `outputs() -> dict[Path, str]`: each file's path below
the checkout and its whole text. `orphans() -> list[Path]` may name files that it once wrote and
that nothing produces any more. Generators are found by themselves: any `tools/gen_*.py`.
"""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    sys.path.insert(0, str(ROOT / "tools"))
    check = "--check" in sys.argv[1:]
    stale = 0
    for path in sorted((ROOT / "tools").glob("gen_*.py")):
        generator = importlib.import_module(path.stem)
        for target, text in generator.outputs().items():
            file = ROOT / target
            if file.exists() and file.read_text() == text:
                continue
            stale += 1
            if check:
                print(f"{target}: not current; run `make gen`")
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
                print(f"wrote {target}")
        for target in getattr(generator, "orphans", list)():
            stale += 1
            print(f"{target}: nothing generates this any more" + ("" if check else "; removed"))
            if not check:
                (ROOT / target).unlink()
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
