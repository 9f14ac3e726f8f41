"""`pairbus backlog` and `pairbus pair` against real namespaces."""

import json
import signal
import subprocess
import sys

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.amqp.codec import encode
from pairbus.cli.errors import ExitCode
from pairbus.client import BulkConnection, BulkReceiver
from pairbus.envelope.encoded import open_message
from pairbus.pairing.fences import Answer, read_answer

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


def put(secondary, path, *bodies, **properties):
    application = {"x-ms-path": "orders", **properties}
    with BulkConnection(secondary.connection_string) as bulk:
        bulk.sender(path).send_batch(
            [
                b"\x00\x53\x73" + encode([f"m-{body}"])
                + b"\x00\x53\x74" + encode(application)
                + b"\x00\x53\x75" + encode(body.encode())
                for body in bodies
            ]
        )  # fmt: skip


def bury(secondary, path, reason="gone"):
    """Move all messages of a queue to its dead letters."""
    with BulkConnection(secondary.connection_string) as bulk:
        tokens = [one.lock_token for one in bulk.receiver(path).receive_now(10)]
        answers = bulk.management(path).settle_each([tokens], "suspended", reason, "no such queue")
        assert answers == [None]


def test_create_makes_what_is_missing_and_leaves_what_is_there(run):
    first = json.loads(run("backlog", "create", "--count", "2", "--json").output)
    assert first == {"created": [run.path(0), run.path(1)], "found": []}
    again = json.loads(run("pair", "create", "--count", "3", "--json").output)
    assert again["created"] == [run.path(2)]
    assert again["found"] == [run.path(0), run.path(1)]
    assert again["differences"] == {}


def test_pair_create_says_what_differs_in_a_queue_that_was_there(run, namespaces):
    _, secondary = namespaces
    secondary.create_queue(run.path(0), max_delivery_count=3)
    result = json.loads(run("pair", "create", "--count", "1", "--json").output)
    (text, *_) = result["differences"][run.path(0)]
    assert "max_delivery_count is 3, not 2147483647" in " ".join(result["differences"][run.path(0)])
    assert text


def test_an_operator_ends_a_drain_through_the_reply_queue(run, namespaces):
    made = json.loads(run("pair", "create", "--count", "1", "--drain-first", "--json").output)
    assert made["created"] == [run.path(0), run.path("replies")]
    assert [row["path"] for row in json.loads(run("backlog", "list", "--json").output)] == [
        run.path(0)
    ]

    result = run("pair", "end-draining", "orders", "--client-id", "client-1", "--json")

    assert json.loads(result.output) == {"entity": "orders", "clients": ["client-1"]}
    with (
        namespaces[1].client() as client,
        client.get_queue_receiver(run.path("replies"), session_id="client-1") as receiver,
    ):
        [order] = receiver.receive_messages(max_wait_time=10)
        assert read_answer(order) == Answer("orders", "", "")
        receiver.complete_message(order)


def test_pair_create_refuses_one_namespace_for_both(run, namespaces, monkeypatch):
    primary, _ = namespaces
    monkeypatch.setenv("PAIRBUS_SECONDARY", primary.connection_string)
    result = run("pair", "create")
    assert result.exit_code == ExitCode.USAGE
    assert "same namespace" in result.stderr


def test_list_shows_depth_dead_letters_and_unused_queues(run, namespaces):
    run("backlog", "create", "--count", "11")
    put(namespaces[1], run.path(1), "a", "b")
    rows = json.loads(run("backlog", "list", "--json").output)
    assert [row["path"] for row in rows] == [run.path(n) for n in range(11)]
    assert rows[1]["messages"] == 2
    assert [row["is_used"] for row in rows] == [True] * 10 + [False]
    table = run("backlog", "list").output
    assert run.path(10) in table
    assert "used" in table.splitlines()[0]


def test_list_of_nothing_says_what_to_do(run):
    assert "pairbus pair create" in run("backlog", "list").output


def test_delete_removes_only_what_is_named(run):
    run("backlog", "create", "--count", "3")
    result = run("backlog", "delete", "2", "--yes")
    assert result.exit_code == 0
    assert result.output == f"deleted {run.path(2)}\n"
    rows = json.loads(run("backlog", "list", "--json").output)
    assert [row["path"] for row in rows] == [run.path(0), run.path(1)]


def test_delete_of_a_queue_that_is_named_twice_deletes_it_once(run):
    run("backlog", "create", "--count", "1")
    result = run("backlog", "delete", "0", run.path(0), "--yes")
    assert (result.exit_code, result.output) == (0, f"deleted {run.path(0)}\n")


def test_delete_refuses_a_queue_that_holds_messages(run, namespaces):
    run("backlog", "create", "--count", "1")
    put(namespaces[1], run.path(0), "a")
    result = run("backlog", "delete", "0", "--yes")
    assert result.exit_code == ExitCode.ERROR
    assert "holds 1 messages" in result.stderr
    assert run("backlog", "delete", "0", "--yes", "--with-messages").exit_code == 0


def test_delete_asks_first_and_takes_no_for_an_answer(run):
    run("backlog", "create", "--count", "1")
    result = run("backlog", "delete", "0", input="n\n")
    assert result.exit_code == ExitCode.INTERRUPTED
    assert len(json.loads(run("backlog", "list", "--json").output)) == 1


@pytest.mark.parametrize("redirect", ["</dev/null", "<&-"])
def test_delete_names_the_option_yes_if_nobody_can_answer(run, redirect):
    run("backlog", "create", "--count", "1")
    command = f"{sys.executable} -m pairbus backlog delete 0 {redirect}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.splitlines()[-1] == (
        "pairbus: nothing was deleted: the standard input has no answer. Try: --yes"
    )
    assert len(json.loads(run("backlog", "list", "--json").output)) == 1


@pytest.mark.parametrize("name", ["orders", "other/x-servicebus-transfer/0", "../0"])
def test_delete_touches_nothing_but_backlog_queues_of_the_pair(run, name):
    result = run("backlog", "delete", name, "--yes")
    assert result.exit_code == ExitCode.USAGE
    assert "is not a backlog queue" in result.stderr


def test_peek_shows_where_messages_go_and_takes_nothing(run, namespaces):
    run("backlog", "create", "--count", "1")
    put(namespaces[1], run.path(0), "a", "b", **{"x-ms-sessionid": "s1"})
    rows = json.loads(run("backlog", "peek", "0", "--json", "--body").output)
    assert [(r["message_id"], r["destination"], r["session_id"], r["body"]) for r in rows] == [
        ("m-a", "orders", "s1", "a"),
        ("m-b", "orders", "s1", "b"),
    ]
    again = run("backlog", "peek", run.path(0))
    assert "m-b" in again.output
    assert "body" not in again.output.splitlines()[0]


def test_peek_without_a_queue_shows_every_queue_that_holds_messages(run, namespaces):
    run("backlog", "create", "--count", "3")
    assert "has no messages" in run("backlog", "peek").output
    put(namespaces[1], run.path(1), "a", "b")
    put(namespaces[1], run.path(2), "c")
    rows = json.loads(run("backlog", "peek", "--json").output)
    assert [(r["queue"], r["message_id"]) for r in rows] == [
        (run.path(1), "m-a"),
        (run.path(1), "m-b"),
        (run.path(2), "m-c"),
    ]
    assert len(json.loads(run("backlog", "peek", "--count", "2", "--json").output)) == 2
    result = run("backlog", "peek", "--from", "7")
    assert result.exit_code == ExitCode.USAGE
    assert "needs the QUEUE" in result.stderr


def test_peek_shows_which_messages_are_deferred(run, namespaces):
    run("backlog", "create", "--count", "1")
    put(namespaces[1], run.path(0), "a", "b")
    with BulkConnection(namespaces[1].connection_string) as bulk:
        receiver = bulk.receiver(run.path(0))
        receiver.settle(receiver.receive_now(1), "defered")
    rows = json.loads(run("backlog", "peek", "0", "--json").output)
    assert [(row["message_id"], row["state"]) for row in rows] == [
        ("m-a", "deferred"),
        ("m-b", "active"),
    ]


def test_dead_letters_are_peeked_with_their_reason_and_resubmitted_as_they_were(run, namespaces):
    secondary = namespaces[1]
    run("backlog", "create", "--count", "1")
    put(secondary, run.path(0), "a", "b", "c")
    bury(secondary, run.path(0))
    rows = json.loads(run("backlog", "peek", "0", "--dead-letters", "--json").output)
    assert [(r["message_id"], r["reason"]) for r in rows] == [
        ("m-a", "gone"),
        ("m-b", "gone"),
        ("m-c", "gone"),
    ]
    number = rows[1]["sequence_number"]
    result = run("backlog", "resubmit", "0", "--sequence", str(number), "--json")
    assert json.loads(result.output)["resubmitted"] == {run.path(0): [number]}
    (back,) = json.loads(run("backlog", "peek", "0", "--json").output)
    assert back["message_id"] == "m-b"
    assert back["destination"] == "orders"
    assert back["reason"] is None
    result = run("backlog", "resubmit", "0", "--all")
    assert f"2 back in {run.path(0)}" in result.output
    assert json.loads(run("backlog", "peek", "0", "--dead-letters", "--json").output) == []


def test_resubmit_wants_to_know_which(run):
    result = run("backlog", "resubmit", "0")
    assert result.exit_code == ExitCode.USAGE
    assert "--all" in result.stderr
    result = run("backlog", "resubmit", "--sequence", "1")
    assert result.exit_code == ExitCode.USAGE
    assert "QUEUE" in result.stderr


@pytest.fixture
def buried(run, namespaces):
    """Dead letters in two backlog queues, for two destinations and with two reasons."""
    run("backlog", "create", "--count", "2")
    secondary = namespaces[1]
    for queue, destination, reason in (
        (0, "orders", "DestinationNotFound"), (0, "bills", "DestinationNotFound"),
        (0, "orders", "TooLarge"), (1, "orders", "DestinationNotFound"),
    ):  # fmt: skip
        put(secondary, run.path(queue), f"{destination}-{reason}", **{"x-ms-path": destination})
        bury(secondary, run.path(queue), reason)
    return secondary


def rows_of(run, queue, *options):
    return json.loads(run("backlog", "peek", queue, "--json", *options).output)


def waiting(run, queue, *options):
    return [(row["destination"], row["reason"]) for row in rows_of(run, queue, *options)]


def test_dry_run_of_resubmit_counts_and_changes_nothing(run, buried):
    result = run("backlog", "resubmit", "--all", "--dry-run", "--json")
    assert json.loads(result.output) == {
        "dry_run": True,
        "groups": [
            {"destination": "bills", "reason": "DestinationNotFound", "messages": 1},
            {"destination": "orders", "reason": "DestinationNotFound", "messages": 2},
            {"destination": "orders", "reason": "TooLarge", "messages": 1},
        ],
        "resubmitted": {},
        "not_found": [],
    }
    assert waiting(run, "0") == []
    assert len(waiting(run, "0", "--dead-letters")) == 3


def test_resubmit_takes_only_one_destination_and_reason_of_all_queues(run, buried):
    result = run(
        "backlog", "resubmit", "--destination", "Orders", "--reason", "destinationnotfound"
    )
    assert result.exit_code == 0, result.output
    assert f"1 back in {run.path(0)}" in result.output
    assert f"1 back in {run.path(1)}" in result.output
    assert waiting(run, "0") == waiting(run, "1") == [("orders", None)]
    assert waiting(run, "0", "--dead-letters") == [
        ("bills", "DestinationNotFound"),
        ("orders", "TooLarge"),
    ]


def test_resubmitted_message_has_the_bytes_that_it_had_before(run, namespaces):
    run("backlog", "create", "--count", "1")
    secondary = namespaces[1]
    annotated = AmqpAnnotatedMessage(
        value_body={"a": [1, None]},
        header={"priority": 7},
        annotations={"x-opt-partition-key": "key"},
        properties={"message_id": "1", "creation_time": 5},
        application_properties={
            "x-ms-path": "orders",
            "x-ms-timetolive": {"TYPE": "LONG", "VALUE": 60_000},
        },
    )
    with ServiceBusClient.from_connection_string(secondary.connection_string) as client:
        client.get_queue_sender(run.path(0)).send_messages(annotated)
    with BulkConnection(secondary.connection_string) as bulk:
        [before] = bulk.management(run.path(0)).peek()
        bury(secondary, run.path(0))
        run("backlog", "resubmit", "0", "--all")
        [after] = bulk.management(run.path(0)).peek(before.sequence_number + 1)
    sent, back = (open_message(one.payload, aliases=False).message for one in (before, after))
    assert back == sent


def test_interrupted_resubmit_loses_nothing(run, buried, monkeypatch):
    def interrupt(self, received, timeout=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BulkReceiver, "complete", interrupt)
        run("backlog", "resubmit", "0", "--destination", "bills")
    # The copy was taken, and the dead letter is still there.
    assert waiting(run, "0") == [("bills", None)]
    assert len(waiting(run, "0", "--dead-letters")) == 3
    # The next run completes it; a duplicate has the same message id.
    assert run("backlog", "resubmit", "0", "--destination", "bills").exit_code == 0
    assert ("bills", "DestinationNotFound") not in waiting(run, "0", "--dead-letters")
    rows = json.loads(run("backlog", "peek", "0", "--json").output)
    assert len({row["message_id"] for row in rows}) == 1


KILLED = """
import os, signal, sys
from pairbus.cli.main import cli
from pairbus.client import BulkReceiver, BulkSender

name = sys.argv.pop(1)
owner = BulkSender if name == "send_batch" else BulkReceiver
original = getattr(owner, name)

def killed(*args, **options):
    original(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, name, killed)
cli()
"""


@pytest.mark.parametrize("step", ["receive_now", "send_batch", "complete"])
def test_resubmit_that_is_killed_after_any_step_loses_nothing(run, buried, step):
    before = {row["message_id"] for row in rows_of(run, "0", "--dead-letters")}
    command = [sys.executable, "-c", KILLED, step, "backlog", "resubmit", "0", "--all"]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    back = [row["message_id"] for row in rows_of(run, "0")]
    left = [row["message_id"] for row in rows_of(run, "0", "--dead-letters")]
    assert before == {*back, *left}
    copies = len(back) + len(left) - len(before)
    assert copies == (len(before) if step == "send_batch" else 0)  # only what was in flight


def test_sequence_number_that_is_not_there_is_reported(run, buried):
    result = run("backlog", "resubmit", "0", "--sequence", "4711")
    assert result.exit_code == ExitCode.NEGATIVE
    assert "not found: 4711" in result.output


def test_secondary_that_is_down_is_told_in_one_line(run, monkeypatch):
    monkeypatch.setenv(
        "PAIRBUS_SECONDARY",
        "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=s3cr3t;"
        "UseDevelopmentEmulator=true",
    )
    monkeypatch.setattr(
        "pairbus.monitoring.configuration.Endpoint.admin",
        lambda self: __import__("pairbus.administration", fromlist=["x"]).admin_client(
            self.value, retry_total=0
        ),
    )
    result = run("backlog", "list")
    assert result.exit_code == ExitCode.ERROR
    assert result.stderr.count("\n") == 1
    assert "listing the backlog queues of 127.0.0.1:1" in result.stderr
    assert "s3cr3t" not in result.output


def test_wrong_key_is_told_with_what_to_try(run, namespaces, monkeypatch):
    good = namespaces[1].connection_string
    monkeypatch.setenv("PAIRBUS_SECONDARY", good.replace("SAS_KEY_VALUE", "d3JvbmcgaXQgaXM="))
    result = run("backlog", "list")
    assert result.exit_code == ExitCode.ERROR
    assert "check the key" in result.stderr
