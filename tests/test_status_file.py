"""The status file of a client ends with its process, also if nobody closes the client."""

import json
import subprocess
import sys
import textwrap

PRELUDE = """
    import os, sys
    from pathlib import Path
    from pairbus.status import PairStatus, StatusFile

    status = PairStatus(
        client_id="c", primary_namespace="contoso", primary="a", secondary="b", state="open"
    )
"""


def run(code, place):
    code = textwrap.dedent(PRELUDE) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_the_file_is_removed_when_a_process_ends_without_closing_its_client(tmp_path):
    code = """
        file = StatusFile(sys.argv[1], "c", lambda: status)
        print(*(found.name for found in Path(sys.argv[1], "status").iterdir()))
    """
    assert run(code, tmp_path) == ["c.json"]
    assert list((tmp_path / "status").iterdir()) == []


def test_the_end_of_a_forked_process_leaves_the_file_of_its_parent(tmp_path):
    code = """
        file = StatusFile(sys.argv[1], "c", lambda: status)
        if not (child := os.fork()):
            sys.exit()  # with the handlers that it inherited
        os.waitpid(child, 0)
        print(*(found.name for found in Path(sys.argv[1], "status").iterdir()))
    """
    assert run(code, tmp_path) == ["c.json"]


def test_the_last_status_in_an_object_store_says_that_the_client_is_closed(tmp_path):
    code = """
        def write(name, data):
            Path(sys.argv[1], name).write_bytes(data)

        file = StatusFile("s3://bucket/ledger", "c", lambda: status, write)
    """
    run(code, tmp_path)
    last = json.loads((tmp_path / "c.json").read_text())
    assert (last["state"], last["state_reason"]) == ("closed", "its process has ended")


def test_an_object_store_that_hangs_does_not_keep_the_process_from_ending(tmp_path):
    code = """
        import threading
        from pairbus import status as module

        module.INTERVAL = 0.1
        hanging = threading.Event()

        def write(name, data):
            hanging.set()
            threading.Event().wait()

        file = StatusFile("s3://bucket/ledger", "c", lambda: status, write)
        hanging.wait()
    """
    code = textwrap.dedent(PRELUDE) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == "status file c.json was not written within 0.1 s\n"
