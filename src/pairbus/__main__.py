"""The `pairbus` command: hand over to the command line, if it is installed."""

import sys


def main() -> None:
    """Run the command line; say what to install where its libraries are missing."""
    try:
        from pairbus.cli.main import run
    except ModuleNotFoundError as exc:
        if (exc.name or "").split(".")[0] not in {"click", "rich"}:
            raise
        sys.exit("pairbus: the command line needs more packages: pip install 'pairbus[cli]'")
    run()


if __name__ == "__main__":
    main()
