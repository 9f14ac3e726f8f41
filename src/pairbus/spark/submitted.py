"""For `spark-submit`: the session of a submitted job, and the bundle for executors.

`spark-submit` starts Java before Python and decides where the job runs. So a submitted job takes
master, resources and files from it and adds only settings that the user did not make.
"""

import io
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from pairbus.names import write_atomically
from pairbus.spark.session import SQL_DEFAULTS, SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["submitted_session", "write_bundle"]

#: Settings of a submitted job, where the user made none.
_DEFAULTS = {**SQL_DEFAULTS, "spark.sql.files.maxPartitionBytes": "16m"}

#: Packages that executors never import; a bundle without them starts faster.
_DRIVER_ONLY = {"aio", "broker", "cli", "dashboard", "demo", "drill", "monitoring", "reports"}


def submitted_session() -> "SparkSession":
    """Return the session of a job that `spark-submit` started, made on the master given there.

    Raises:
        SparkUnavailableError: a setting of the job cannot work.
    """
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    given = session.sparkContext.getConf()
    if given.get("spark.speculation", "false") == "true":
        session.stop()
        raise SparkUnavailableError(
            "spark.speculation must be false: a second task for a queue receives other messages"
        )
    _add_python_path(session)
    parallel = session.sparkContext.defaultParallelism
    defaults = {**_DEFAULTS, "spark.sql.shuffle.partitions": str(max(8, 2 * parallel))}
    for name, value in defaults.items():
        if not given.contains(name):
            session.conf.set(name, value)
    return session


def _add_python_path(session: "SparkSession") -> None:
    """Let the Python processes of the driver find the bundle.

    Spark gives the files of `--py-files` to executors, but not to the process in which the driver
    runs a streaming source. A path that does not exist, as on executors, is ignored.
    """
    context = session.sparkContext
    files = context.getConf().get("spark.submit.pyFiles", "") or ""
    paths = [path.removeprefix("file://") for path in files.split(",") if path]
    known = context.environment.get("PYTHONPATH")
    if paths:
        every = [*([known] if known else []), *(str(Path(path).absolute()) for path in paths)]
        context.environment["PYTHONPATH"] = os.pathsep.join(every)


def write_bundle(target: Path) -> int:
    """Write the .zip that executors need (`spark-submit --py-files`); return its bytes.

    It has all modules of pairbus that run on executors. Executors also need pyspark and pyarrow,
    but neither azure-servicebus nor an installed pairbus.

    Args:
        target: the file; replaced atomically.
    """
    root = Path(__file__).parents[1]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for file in sorted(root.rglob("*.py")):
            path = file.relative_to(root)
            if path.parts[0] not in _DRIVER_ONLY:
                _add(bundle, f"pairbus/{path.as_posix()}", file.read_bytes())
    write_atomically(target, buffer.getvalue())
    return len(buffer.getvalue())


def _add(bundle: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a file with a fixed time: the same version gives the same bytes."""
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    bundle.writestr(info, data)
