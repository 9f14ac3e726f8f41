"""Sending, receiving and settling against the embedded broker, over real sockets."""

import uuid

import pytest

from pairbus.amqp.message import Message
from pairbus.client import (
    NEXT_SESSION,
    LinkDetachedError,
    Mode,
    OperationTimeoutError,
    RejectedError,
    RequestFailedError,
    dead_letter,
)
from pairbus.client.aio import BulkConnection
from pairbus.runtime import AsyncioRuntime
from tests.client.support import ids, message

runtime = AsyncioRuntime()


async def test_messages_go_and_come_in_order(connection, queue):
    outcomes = await (await connection.sender(queue)).send_batch([message(n) for n in range(50)])
    assert [(o.start, o.count, o.is_accepted) for o in outcomes] == [(0, 50, True)]
    received = await (await connection.receiver(queue)).receive_now(100)
    assert ids(received) == [str(n) for n in range(50)]
    numbers = [one.sequence_number for one in received]
    assert numbers == sorted(numbers)
    assert received[0].locked_until > received[0].enqueued_time > 0
    assert received[0].lock_token is not None
    assert received[0].delivery_count == 0


async def test_payload_comes_with_the_very_bare_message(connection, queue):
    sent = message("m")
    assert (await (await connection.sender(queue)).send_batch([sent]))[0].is_accepted
    (received,) = await (await connection.receiver(queue)).receive_now(1)
    assert received.message.bare == Message.parse(sent).bare


async def test_receive_takes_no_more_than_asked_and_leaves_no_credit(connection, queue):
    await (await connection.sender(queue)).send_batch([message(n) for n in range(10)])
    receiver = await connection.receiver(queue)
    assert ids(await receiver.receive_now(3)) == ["0", "1", "2"]
    assert receiver.link.credit == 0
    assert len(await receiver.receive_now(100)) == 7
    assert (await receiver.receive_now(5)) == []


async def test_receive_is_bounded_by_bytes(connection, queue):
    await (await connection.sender(queue)).send_batch([message(n, 1000) for n in range(300)])
    received = await (await connection.receiver(queue)).receive_now(300, max_bytes=100_000)
    assert 64 <= len(received) < 150


async def test_tokens_settle_on_any_connection(ns, connection, queue):
    await (await connection.sender(queue)).send_batch([message(n) for n in range(2500)])
    received = await (await connection.receiver(queue)).receive_now(2500)
    async with BulkConnection(ns.connection_string) as other:
        management = other.management(queue)
        assert other.management(queue) is management
        tokens = [one.lock_token for one in received]
        assert await management.settle_each([tokens[:1000], tokens[1000:2400]]) == [None, None]
        tags = [one.tag for one in received[2400:2450]]
        assert await management.settle_each([tags], "abandoned") == [None]
        assert await management.settle_each([tokens[2450:]], "suspended", "why", "what") == [None]
    assert len(await (await connection.receiver(queue)).receive_now(100)) == 50
    dead = await (await connection.receiver(f"{queue}/$DeadLetterQueue")).receive_now(100)
    assert len(dead) == 50
    assert dead[0].message.application_properties["DeadLetterReason"] == "why"


async def test_lost_token_fails_with_its_condition(connection, queue):
    [error] = await connection.management(queue).settle_each([[uuid.uuid4()]])
    assert isinstance(error, RequestFailedError)
    assert error.condition == "com.microsoft:message-lock-lost"
    assert error.status_code == 410


async def test_settling_on_the_link_tells_each_outcome(connection, queue):
    await (await connection.sender(queue)).send_batch([message(n) for n in range(6)])
    receiver = await connection.receiver(queue)
    received = await receiver.receive_now(10)
    await receiver.complete(received[:3])
    assert (await receiver.settle(received[3:4], dead_letter("bad", "very"))) == [None]
    assert (await receiver.settle(received[4:], "abandoned")) == [None, None]
    again = await receiver.receive_now(10)
    assert ids(again) == ["4", "5"]
    assert [one.delivery_count for one in again] == [1, 1]
    receiver.release(again)
    assert [one.delivery_count for one in (await receiver.receive_now(10))] == [1, 1]


async def test_settling_twice_is_a_lost_lock(connection, queue):
    assert (await (await connection.sender(queue)).send_batch([message(1)]))[0].is_accepted
    receiver = await connection.receiver(queue)
    received = await receiver.receive_now(1)
    await connection.management(queue).settle_each([[received[0].lock_token]])
    (error,) = await receiver.settle(received)
    assert error.condition == "com.microsoft:message-lock-lost"


async def test_receive_and_delete(connection, queue):
    assert (await (await connection.sender(queue)).send_batch([message(1)]))[0].is_accepted
    receiver = await connection.receiver(queue, mode=Mode.RECEIVE_AND_DELETE)
    assert len(await receiver.receive_now(5)) == 1
    assert (await receiver.receive_now(5)) == []


async def test_peek_touches_nothing(connection, queue):
    await (await connection.sender(queue)).send_batch([message(n) for n in range(5)])
    management = connection.management(queue)
    assert ids(await management.peek(0, 3)) == ["0", "1", "2"]
    assert (await management.peek((await management.peek(0, 5))[-1].sequence_number + 1)) == []
    assert len(await (await connection.receiver(queue)).receive_now(10)) == 5


async def test_pages_end_with_an_empty_one(connection, queue):
    await (await connection.sender(queue)).send_batch([message(n) for n in range(5)])
    pages = [ids(page) async for page in connection.management(queue).peek_pages(2)]
    assert pages == [["0", "1"], ["2", "3"], ["4"], []]


async def test_missing_entity_has_no_pages(connection):
    assert [page async for page in connection.management("missing").peek_pages(2)] == []


async def test_locks_are_renewed_and_deferred_messages_come_by_number(connection, queue):
    await (await connection.sender(queue)).send_batch([message(n) for n in range(2)])
    receiver = await connection.receiver(queue)
    first, second = await receiver.receive_now(2)
    management = connection.management(queue)
    (until,) = await management.renew([first.lock_token])
    assert until >= first.locked_until
    await management.settle_each([[second.lock_token]], "defered")
    (again,) = await management.receive_deferred([second.sequence_number])
    assert ids([again]) == ["1"]
    await management.settle_each([[again.lock_token]])
    await receiver.complete([first])


async def test_doorbell_rings_for_a_message_and_gives_it_back(ns, connection, queue):
    receiver = await connection.receiver(queue)
    assert (await receiver.wait(0.01)) is False
    rang = []

    async def wait():
        rang.append(await receiver.wait(10))

    waiter = runtime.spawn(wait, name="waiter")
    sender = await connection.sender(queue)  # beside the waiter, on the same connection
    assert (await sender.send_batch([message(1)]))[0].is_accepted
    assert await waiter.join(60)
    assert rang == [True]
    (received,) = await receiver.receive_now(10)
    assert received.delivery_count == 0


async def test_one_wait_serves_many_doorbells(ns, connection, queue):
    with ns.admin_client() as admin:
        admin.create_queue(queue + "-other")
    try:
        receivers = [
            (await connection.receiver(queue)),
            (await connection.receiver(queue + "-other")),
        ]
        assert (await connection.wait_any(receivers, 0.01)) == []
        sender = await connection.sender(queue + "-other")
        assert (await sender.send_batch([message(1)]))[0].is_accepted
        assert (await connection.wait_any(receivers, 10)) == [receivers[1]]
        assert [r.link.credit for r in receivers] == [0, 0]
    finally:
        with ns.admin_client() as admin:
            admin.delete_queue(queue + "-other")


async def test_receive_waits_for_the_first_message(connection, queue):
    receiver = await connection.receiver(queue)
    assert (await receiver.receive(5, 0.01)) == []
    await (await connection.sender(queue)).send_batch([message(n) for n in range(3)])
    assert ids(await receiver.receive(5, 10)) == ["0", "1", "2"]


async def test_batches_are_cut_to_what_the_link_takes(connection, queue):
    sender = await connection.sender(queue)
    sender.max_batch_bytes = 10_000
    messages = [message(n, 1000) for n in range(40)]
    outcomes = await sender.send_batch(messages)
    assert len(outcomes) > 3
    assert sum(o.count for o in outcomes) == 40
    assert all(o.is_accepted for o in outcomes)
    assert ids(await (await connection.receiver(queue)).receive_now(100)) == [
        str(n) for n in range(40)
    ]


async def test_message_that_is_too_large_is_refused_alone(connection, queue):
    sender = await connection.sender(queue)
    outcomes = await sender.send_batch(
        [message(0), message(1, sender.max_message_bytes + 1), message(2)]
    )
    assert [o.is_accepted for o in outcomes] == [True, False, True]
    assert outcomes[1].error.condition == "amqp:link:message-size-exceeded"


async def test_messages_sent_each_by_itself_have_an_outcome_each(connection, queue):
    sender = await connection.sender(queue)
    outcomes = await sender.send_each(
        [message(n) for n in range(1500)]
    )  # more than one grant of credit
    assert [o.is_accepted for o in outcomes] == [True] * 1500
    assert ids(await (await connection.receiver(queue)).receive_now(2000)) == [
        str(n) for n in range(1500)
    ]


async def test_many_senders_are_in_flight_side_by_side(ns, connection, queue):
    senders = [(await connection.sender(queue)) for _ in range(3)]
    posted = [sender.post([message(n)]) for n, sender in enumerate(senders)]
    assert [(await p.wait())[0].is_accepted for p in posted] == [True] * 3


async def test_rejected_batch_says_why(ns, connection, queue):
    sender = await connection.sender(queue)
    ns.faults.reject("com.microsoft:server-busy", entity=queue, times=1)
    (outcome,) = await sender.send_batch([message(1), message(2)])
    assert outcome.error.condition == "com.microsoft:server-busy"
    assert isinstance(outcome.error, RejectedError)
    (outcome,) = await sender.send_batch([message(1), message(2)])
    assert outcome.is_accepted


async def test_unknown_entity_is_refused_with_its_condition(connection):
    for make in (connection.sender, connection.receiver):
        with pytest.raises(LinkDetachedError) as caught:
            await make("no-such-queue")
        assert caught.value.condition == "amqp:not-found"
    assert connection.is_usable


async def test_never_answered_send_times_out_with_unknown_outcome(ns, connection, queue):
    sender = await connection.sender(queue)
    with ns.faults.hang(entity=queue):
        (outcome,) = await sender.send_batch([message(1)], timeout=0.05)
    assert isinstance(outcome.error, OperationTimeoutError)


async def test_sessions_are_accepted_by_name_and_next(ns, connection):
    sender = await connection.sender("sessions")
    await sender.send_batch([message(n, group_id="A") for n in range(3)])
    assert (await sender.send_batch([message(9, group_id="B")]))[0].is_accepted
    async with await connection.receiver("sessions", session_id="A") as named:
        received = await named.receive_now(10)
        assert ids(received) == ["0", "1", "2"]
        await named.complete(received)
    async with await connection.receiver("sessions", session_id=NEXT_SESSION) as following:
        assert following.session_id == "B"
        await following.complete(await following.receive_now(1))


async def test_delayed_answers_overlap(ns, connection, queue):
    senders = [(await connection.sender(queue)) for _ in range(3)]
    with ns.faults.delay(0.05, entity=queue):
        posted = [sender.post([message(1)]) for sender in senders]
        assert [(await p.wait())[0].is_accepted for p in posted] == [True] * 3


async def test_broker_forgets_deliveries_that_were_settled_by_token(
    ns, connection, queue, monkeypatch
):
    from pairbus.broker.server import receiving_link as receiving

    monkeypatch.setattr(receiving, "SWEEP_FROM", 10)
    sender, receiver = (await connection.sender(queue)), (await connection.receiver(queue))
    management = connection.management(queue)
    first = None
    for _ in range(5):
        await sender.send_batch([message(n) for n in range(20)])
        received = await receiver.receive_now(20)
        first = first or received[:1]
        await management.settle_each([[one.lock_token for one in received]])
    (server,) = [c for c in ns._broker.connections if c.engine.sessions]  # noqa: SLF001 - what the server keeps is not visible outside
    (session,) = server.engine.sessions.values()
    assert len(session.unsettled) <= 40
    (error,) = await receiver.settle(first)
    assert error.condition == "com.microsoft:message-lock-lost"
