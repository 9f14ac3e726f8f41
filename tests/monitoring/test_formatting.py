"""Values as text."""

from pairbus.monitoring.formatting import brief
from pairbus.monitoring.syphon_problems import explain_stall, explain_wait, explain_waits


def test_reasons_are_shown_without_what_the_sdk_says_around_them():
    long = (
        "ServiceBusConnectionError: Failed to initiate the connection due to exception: "
        "[Errno 111] Connection refused Error condition: amqp:socket-error."
    )
    assert brief(long) == "ServiceBusConnectionError: [Errno 111] Connection refused"
    assert brief("the queue is full") == "the queue is full"
    assert len(brief("x" * 500)) == 110
    assert brief(None) == ""


def test_stall_is_explained_in_plain_words():
    assert explain_stall("primary: amqp:connection:forced") == "the primary cannot be reached"
    assert (
        explain_stall("primary: amqp:connection:forced", 8.4)
        == "the primary cannot be reached; next try in 8s"
    )
    assert explain_stall("primary: com.microsoft:server-busy") == "the primary is throttling"
    assert explain_stall("ledger: No space left") == "the ledger cannot be written: No space left"
    assert explain_stall("nothing moved for 40 s") == "nothing moved for 40 s"
    assert explain_stall(None) == ""


def test_waiting_destination_is_explained_in_plain_words():
    assert (
        explain_wait("orders", "com.microsoft:entity-disabled")
        == "orders: waiting for it to be enabled"
    )
    assert explain_waits({"bills": "x:odd", "*": "amqp:socket-error"}) == [
        "bills: refused (x:odd); retrying"
    ]
