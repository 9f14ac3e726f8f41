"""The script for `spark-submit $(pairbus spark job-path) syphon|cost|reconcile …`.

The arguments are those of `pairbus syphon run`, `pairbus cost report` and `pairbus reconcile`,
except `--master`, which is an option of `spark-submit`.
"""

import sys
from pathlib import Path
from typing import NoReturn

JOBS = {"syphon": ("syphon", "run"), "cost": ("cost", "report"), "reconcile": ("reconcile",)}


def command_of(arguments: list[str]) -> list[str]:
    """Return the command line of `pairbus` for the arguments of a job.

    Raises:
        ValueError: there is no such job; one line that names them.
    """
    name = arguments[0] if arguments else ""
    if name not in JOBS:
        raise ValueError(f"the first argument must be one of {', '.join(JOBS)}, got {name!r}")
    if any(one == "--master" or one.startswith("--master=") for one in arguments):
        raise ValueError("--master belongs before the script: spark-submit --master URL …")
    verb, rest = JOBS[name], arguments[1:]
    return [*verb, *(rest[1:] if rest[:1] == list(verb[1:]) and verb[1:] else rest)]


def main() -> NoReturn:
    """Run the job on the session that `spark-submit` describes."""
    # Python puts the script's folder first on the path; its modules are no top-level modules. Then
    # comes the bundle for the executors, which lacks the modules that only the driver needs: the
    # package that this script belongs to goes before it.
    folder = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if not path or Path(path).resolve() != folder]
    if folder.parent.name == "pairbus":  # it may have been copied somewhere else
        sys.path.insert(0, str(folder.parents[1]))
    from pairbus.cli.errors import ExitCode
    from pairbus.cli.main import cli
    from pairbus.spark.session import SparkUnavailableError
    from pairbus.spark.submitted import submitted_session

    try:
        command = command_of(sys.argv[1:])
        if not {"--help", "-h"} & set(command):
            submitted_session()
    except (ValueError, SparkUnavailableError) as exc:
        print(f"pairbus: {exc}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    cli.main(command)


if __name__ == "__main__":
    main()
