"""The archive of Spark's classes, and the start script of Java that uses it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pairbus.spark import java
from pairbus.spark.archive import ArchiveError, base_of, create_archive
from pairbus.spark.java import ARCHIVE, BASE, conf_path, ensure_java, find_java
from pairbus.spark.session import prepare_environment


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """An environment of its own, so that the archive of others is neither used nor changed."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    return tmp_path


def arguments_of(home, *arguments, conf=""):
    """What the start script runs: Java prints the options that it was given."""
    done = subprocess.run(
        [f"{home}/bin/java", "-XX:+PrintCommandLineFlags", *arguments, "-version"],
        env={**os.environ, "SPARK_CONF_DIR": conf},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def test_without_an_archive_java_gets_no_option_for_one(own_folder):
    assert "SharedArchiveFile" not in Path(ensure_java(), "bin", "java").read_text()


def test_the_start_script_uses_an_archive_that_was_made_since(own_folder):
    home = Path(ensure_java())
    (home / ARCHIVE).write_bytes(b"not an archive: Java ignores it")
    assert ensure_java() == str(home)
    assert str(home / ARCHIVE) in arguments_of(home)
    (home / ARCHIVE).unlink()
    ensure_java()
    assert "SharedArchiveFile" not in arguments_of(home)


def test_java_does_not_print_that_an_archive_does_not_fit(own_folder):
    home = Path(ensure_java())
    (home / ARCHIVE).write_bytes(b"x" * 5000)
    ensure_java()
    done = subprocess.run(
        [home / "bin" / "java", "-version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert "version" in done.stderr
    assert "cds" not in done.stderr


def test_a_folder_that_is_complete_need_not_be_writable(own_folder, monkeypatch):
    home = ensure_java()

    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(java, "write_atomically", refuse)
    assert ensure_java() == home


def test_a_second_folder_is_used_where_the_environment_cannot_be_written(own_folder, monkeypatch):
    (own_folder / "environment").write_text("no directory")
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(own_folder / "temp"))
    assert ensure_java().startswith(str(own_folder / "temp"))


def test_each_jar_of_spark_is_on_the_class_path_once(own_folder):
    jars = own_folder / "a b" / "jars"
    jars.mkdir(parents=True)
    for name in ("log4j.jar", "slf4j-api-2.jar", "arrow.jar"):
        (jars / name).touch()
    given = f"/conf:{jars}/slf4j-api-2.jar:{jars}/*"
    shown = arguments_of(ensure_java(), "-cp", given, "-XshowSettings:properties")
    found = [line.strip() for line in shown.partition("java.class.path = ")[2].splitlines()[:4]]
    assert found == [
        "/conf", f"{jars}/slf4j-api-2.jar", f"{jars}/arrow.jar", f"{jars}/log4j.jar"
    ]  # fmt: skip


def test_only_sessions_without_a_configuration_of_their_own_get_the_quiet_log(own_folder):
    home = ensure_java()
    is_quiet = "set -- -Dlog4j2.configurationFile="
    assert is_quiet in Path(home, "bin", "java").read_text()
    print_it = "-XshowSettings:properties"
    assert "log4j2.configurationFile" in arguments_of(home, print_it, conf=str(conf_path(home)))
    assert "log4j2.configurationFile" not in arguments_of(home, print_it, conf="/etc/spark")


def test_a_session_has_no_directory_on_its_class_path(own_folder, monkeypatch):
    for name in ("SPARK_CONF_DIR", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    prepare_environment()
    assert os.environ["SPARK_CONF_DIR"] == str(conf_path(os.environ["JAVA_HOME"]))
    assert not Path(os.environ["SPARK_CONF_DIR"]).exists()


def test_a_failure_is_one_line_and_leaves_no_file(own_folder):
    home = Path(ensure_java())
    (home / ARCHIVE).write_bytes(b"the one before")
    failing = [sys.executable, "-c", "import sys; sys.exit('Traceback …\\nno space left')"]
    with pytest.raises(ArchiveError, match=r"^Java wrote no archive: no space left$"):
        create_archive(failing)
    assert (home / ARCHIVE).read_bytes() == b"the one before"
    assert {path.name for path in home.iterdir()} - {BASE} == {"bin", ARCHIVE}


@pytest.mark.long
def test_a_session_takes_its_classes_from_the_archive(own_folder):
    path = create_archive()
    assert path.parent == Path(ensure_java())
    log = own_folder / "classes.log"
    script = (
        "import sys; sys.prefix = sys.argv[1]\n"
        "from pairbus.spark.session import get_session\n"
        "spark = get_session('local[1]'); spark.range(1).count(); spark.stop()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, sys.prefix],
        env={**os.environ, "SPARK_SUBMIT_OPTS": f"-Xlog:class+load:file={log}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    loaded = log.read_text().splitlines()
    archived = sum("shared objects file (top)" in line for line in loaded)
    of_spark = sum("org.apache.spark" in line for line in loaded)
    assert archived > of_spark * 0.9 > 1000


def test_the_archive_of_java_itself_is_the_one_that_it_brings(own_folder):
    home = Path(ensure_java())
    base = base_of(find_java(), home)
    assert base.is_file() is (base.parent != home)
