"""The `pairbus` command: runs the command line, if it is installed."""

import sys


def main() -> None:
    """Run the command line; if its libraries are missing, print how to install them."""
    try:
        from pairbus.cli.main import run
    except ModuleNotFoundError as exc:
        if (exc.name or "").split(".")[0] not in {"click", "rich"}:
            raise
        sys.stderr.write("pairbus: this needs the command line: pip install 'pairbus[cli]'\n")
        sys.exit(69)  # pairbus.cli.errors.ExitCode.MISSING_EXTRA, which needs click
    run()


if __name__ == "__main__":
    main()
