"""The demo, whole: real processes, a kill -9, Spark, and a verdict."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from pairbus.demo.display import HEIGHT, WIDTH, Display, Progress
from pairbus.demo.message_account import MessageAccount, judge, out_of_order

COST = {"currency": "USD", "stages": [], "operations": 0, "total": "0"}


def verdict(account, **changes):
    facts = {
        "detecting": {"orders"},
        "balanced": True,
        "reconciliation": "",
        "cost": COST,
        "seconds": {},
    }
    return judge(account, **{**facts, **changes})


def sent_and_arrived():
    account = MessageAccount()
    for number, name in enumerate("abc"):
        account.add_sent(name, "orders", "s1", number)
    account.add_backlogged(("b", "c"), "q0")
    for number, name in enumerate("abc"):
        account.add_received("orders", name, number + 1)
    return account


def test_all_arrived_once_in_order_is_a_good_verdict():
    found = verdict(sent_and_arrived())
    assert found.ok
    assert (found.sent, found.delivered, found.through_backlog, found.lost) == (3, 3, 2, 0)


def test_lost_message_is_a_bad_verdict():
    account = sent_and_arrived()
    account.add_sent("d", "orders", "s1", 3)
    found = verdict(account)
    assert not found.ok
    assert found.lost == 1
    assert "1 lost" in found.problems


def test_second_copy_is_bad_only_where_duplicates_are_detected():
    account = sent_and_arrived()
    account.add_received("orders", "b", 77)
    assert not verdict(account).ok
    assert verdict(account, detecting=set()).ok
    assert verdict(account, detecting=set()).duplicates == 1


def test_same_copy_again_is_a_redelivery_and_no_duplicate():
    account = sent_and_arrived()
    account.add_received("orders", "b", 2)
    found = verdict(account)
    assert found.ok
    assert (found.duplicates, found.redelivered) == (0, 1)


def test_order_is_judged_within_one_session_and_one_backlog_queue():
    account = MessageAccount()
    for number, name in enumerate("abcd"):
        account.add_sent(name, "orders", "s1", number)
    account.add_backlogged(("a", "c"), "q0")
    account.add_backlogged(("b",), "q1")
    # a after c, in the same queue: broken; b came by another queue: fine.
    for number, name in enumerate("cabd"):
        account.add_received("orders", name, number)
    assert out_of_order(account) == ["a"]
    assert not verdict(account).order_kept


def test_order_is_that_of_the_destination_and_not_that_of_its_readers():
    """The SDK releases a message that comes between two receives, and reads it again later."""
    account = MessageAccount()
    for number, name in enumerate("abc"):
        account.add_sent(name, "orders", "s1", number)
    account.add_backlogged(("a", "b", "c"), "q0")
    for name in "acb":
        account.add_received("orders", name, ord(name))
    assert out_of_order(account) == []


def test_message_that_may_be_in_two_places_breaks_no_order():
    """Its send was not answered and was repeated elsewhere: the other copy may come home first."""
    account = MessageAccount()
    for number, name in enumerate("ab"):
        account.add_sent(name, "orders", "s1", number)
    account.add_backlogged(("a",), "q0")
    account.add_backlogged(("b",), "q0", is_uncertain=True)
    for number, name in enumerate("ba"):
        account.add_received("orders", name, number)
    assert out_of_order(account) == []


def test_demo_that_saw_no_outage_has_proved_nothing():
    account = MessageAccount()
    account.add_sent("a", "orders", None, 0)
    account.add_received("orders", "a", 1)
    assert "nothing went through the backlog" in verdict(account).problems


def test_picture_is_plain_lines_in_a_pipe_and_drawn_on_a_terminal(capsys):
    display = Display(Progress(["one", "two"]))
    with display:
        display.act("first")
        display.update(
            counts={"orders": {"sent": 1, "backlog": 2, "arrived": 3, "retries": 0}}, to_drain=4
        )
    lines = capsys.readouterr().out
    assert "== one: first" in lines
    assert "orders sent 1 arrived 3" in lines
    from rich.console import Console

    drawn = io.StringIO()
    display.update(drained=4)
    Console(width=100, file=drawn).print(display.render())
    assert "pairbus demo" in drawn.getvalue()
    assert "drained 4 of 4" in drawn.getvalue()


def test_picture_has_a_fixed_height_and_fits_a_small_terminal():
    from rich.console import Console

    def height(display):
        drawn = io.StringIO()
        Console(width=WIDTH, file=drawn).print(display.render())
        lines = drawn.getvalue().splitlines()
        assert max(map(len, lines)) <= WIDTH
        return len(lines)

    display = Display(Progress(["set up", "healthy", "outage", "recovery", "drain", "account"]))
    empty = height(display)
    assert empty <= HEIGHT
    figures = {"sent": 123_456_789, "backlog": 12_345_678, "arrived": 123_456_789, "retries": 1234}
    display.act("kill -9 12345: the primary is down; senders continue, and this is very long")
    for number in range(20):
        display.say(f"failed over: orders, {'a very long reason ' * 10}{number}")
    display.update(
        counts=dict.fromkeys(("orders", "bills", "news"), figures), drained=4, to_drain=9,
        phases={"orders": "suspect"}, backlog=99_999_999, page="http://127.0.0.1/" + "x" * 99,
    )  # fmt: skip
    assert height(display) == empty


def test_picture_has_the_whole_link_of_the_page_and_no_part_of_it():
    from rich.console import Console

    link = f"http://127.0.0.1:65535/?token={'x' * 32}"
    display = Display(Progress(["set up"]))
    display.show_page(link)
    drawn = io.StringIO()
    Console(width=WIDTH, file=drawn).print(display.render())
    assert drawn.getvalue().count("http://") == 1
    assert link in drawn.getvalue()


@contextlib.contextmanager
def running_demo(folder, *options):
    process = subprocess.Popen(
        [sys.executable, "-m", "pairbus", "--debug", "demo", "--fast", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()


def read_until(process, text):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError("".join(lines))


@pytest.mark.spark
@pytest.mark.slow
def test_demo_survives_the_outage_loses_nothing_and_stays_up_to_play_with(tmp_path):
    with running_demo(tmp_path, "--json", "--keep") as demo:
        lines = read_until(demo, "Press Ctrl-C to stop.")
        exports = re.findall(r"export (\w+)='(.*)'", "".join(lines))
        page = re.search(r"live page: (\S+)", "".join(lines))[1]
        assert urllib.request.urlopen(page, timeout=30).status == 200
        listed = subprocess.run(
            [sys.executable, "-m", "pairbus", "backlog", "list", "--json"],
            capture_output=True,
            text=True,
            env={**os.environ, **dict(exports)},
        )
        assert listed.returncode == 0, listed.stderr
        assert [queue["messages"] for queue in json.loads(listed.stdout)] == [0, 0]
        demo.send_signal(signal.SIGINT)
        lines += demo.stdout.readlines()
    assert demo.returncode == 0, "".join(lines)
    (found,) = [json.loads(line) for line in lines if line.startswith("{")]
    assert found["ok"]
    assert found["lost"] == 0
    assert found["sent"] == found["delivered"] > found["through_backlog"] > 0
    assert found["order_kept"]
    assert found["duplicates_where_detected"] == 0
    stages = {row["stage"] for row in found["cost"]["stages"]}
    assert {"send_primary", "send_backlog", "receive_backlog", "ping"} <= stages
    # It cleans up after itself.
    assert not list(tmp_path.glob("pairbus-demo-*"))


def wait_until_gone(pid):
    """Whether a process ends: the demo has ended it, but the system may still be at it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_demo_that_is_terminated_leaves_no_broker_behind(tmp_path, how):
    with running_demo(tmp_path, "--no-page") as demo:
        lines = read_until(demo, "contoso-dr runs as process")
        demo.send_signal(how)
        lines += demo.stdout.readlines()
    assert demo.returncode == 128 + how, "".join(lines)
    for pid in re.findall(r"runs as process (\d+)", "".join(lines)):
        assert wait_until_gone(int(pid))
    assert not list(tmp_path.glob("pairbus-demo-*"))


def test_lines_of_child_processes_do_not_tear_the_picture(capfd):
    with Display(Progress(["set up"]), drawn=True):
        subprocess.run(["sh", "-c", "echo a line of Java >&2"], check=True)
    assert "a line of Java" not in "".join(capfd.readouterr())


def test_lines_of_child_processes_are_shown_when_the_demo_fails(capfd):
    failing = ["sh", "-c", "echo a line of Java >&2; exit 1"]
    with (
        pytest.raises(subprocess.CalledProcessError),
        Display(Progress(["set up"]), drawn=True),
    ):
        subprocess.run(failing, check=True)
    assert "a line of Java" in capfd.readouterr().err
