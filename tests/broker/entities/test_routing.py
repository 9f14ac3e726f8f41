"""Topics and rules, forwarding, quotas, pings, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from pairbus.amqp.codec import encode
from pairbus.amqp.message import Message, Properties
from pairbus.amqp.types import Pairs, Symbol
from pairbus.broker.entities.errors import (
    ArgumentError,
    EntityDisabledError,
    EntityExistsError,
    EntityNotFoundError,
    MessageSizeExceededError,
    NotAllowedError,
    QuotaExceededError,
)
from pairbus.broker.entities.messages import IncomingMessage, Outcome
from pairbus.broker.entities.model import (
    CorrelationFilter,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    TypedValue,
)
from pairbus.broker.server.incoming import read_message
from pairbus.broker.server.outgoing import render_delivery
from pairbus.names import PING_CONTENT_TYPE
from tests.broker.entities.kit import Bench, properties_of


def bare(subject: str | None = None, **properties) -> bytes:
    return Message.build(
        properties=Properties(subject=subject), application_properties=properties, data=b"x"
    ).bare


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.ns.admin.create(TopicDescription("t"))
    return bench


KEPT = "t/Subscriptions/kept"


def subscribe(bench, name, *rules, **properties):
    bench.ns.admin.create(
        SubscriptionDescription("t", name, **properties), rules[0] if rules else None
    )
    for rule in rules[1:]:
        bench.ns.admin.create_rule("t", name, rule)


def received(bench, name, path="t/Subscriptions/{}"):
    return bench.receive(99, path=path.format(name))


# --- topics ---------------------------------------------------------------------------------------


def test_each_subscription_gets_a_copy_with_its_own_number(bench):
    subscribe(bench, "a")
    bench.send(b"0", path="t")
    subscribe(bench, "b")
    bench.send(b"1", path="T")
    assert [d.message.bare for d in received(bench, "a")] == [b"0", b"1"]
    (copy,) = received(bench, "b")
    assert (copy.message.sequence_number, copy.message.enqueued_sequence_number) == (1, 2)
    assert bench.ns.admin.runtime("t").subscription_count == 2


def test_a_message_that_nobody_subscribed_to_is_gone(bench):
    bench.send(b"0", path="t")
    assert bench.ns.admin.runtime("t").size_in_bytes == 0


def test_filters_choose_by_properties_and_system_properties(bench):
    subscribe(bench, "sql", RuleDescription("r", SqlFilter("color = 'red' AND size > 3")))
    subscribe(bench, "label", RuleDescription("r", SqlFilter("sys.Label = 'hot'")))
    subscribe(bench, "correlation", RuleDescription("r", CorrelationFilter(label="hot")))
    bench.send(bare(color="red", size=4), bare("hot", color="blue"), path="t")
    assert [properties_of(d)["color"] for d in received(bench, "sql")] == ["red"]
    assert [properties_of(d)["color"] for d in received(bench, "label")] == ["blue"]
    assert [properties_of(d)["color"] for d in received(bench, "correlation")] == ["blue"]


def test_matching_rules_without_action_make_one_copy_and_each_action_one_more(bench):
    subscribe(
        bench,
        "s",
        RuleDescription("one", TrueFilter()),
        RuleDescription("two", SqlFilter("1=1")),
        RuleDescription("act", TrueFilter(), SqlAction("SET seen = 'yes'; REMOVE color")),
        RuleDescription("no", SqlFilter("1=0"), SqlAction("SET seen = 'no'")),
    )
    bench.send(bare(color="red"), path="t")
    copies = [properties_of(d) for d in received(bench, "s")]
    assert copies == [{"color": "red"}, {"seen": "yes"}]


@pytest.mark.parametrize(
    "expression",
    [
        "sys.MessageId = 'm' AND sys.SessionId = 's' AND sys.PartitionKey = 's'",
        "sys.Size > 3 AND sys.DeliveryCount = 0 AND sys.SequenceNumber = 1",
        "sys.EnqueuedTimeUtc IS NOT NULL AND sys.ExpiresAtUtc > sys.EnqueuedTimeUtc",
        "sys.TimeToLive IS NOT NULL AND sys.ScheduledEnqueueTimeUtc IS NULL",
        "sys.DeadLetterSource IS NULL AND sys.To IS NULL",
    ],
)
def test_a_filter_sees_system_properties(bench, expression):
    subscribe(bench, "s", RuleDescription("r", SqlFilter(expression)))
    message = Message.build(properties=Properties(message_id="m", group_id="s"), data=b"x").bare
    bench.send(message, path="t", message_id="m", session_id="s", partition_key="s", ttl=5000)
    assert len(received(bench, "s")) == 1


def test_an_action_can_set_what_decides_about_the_copy(bench):
    subscribe(
        bench,
        "s",
        RuleDescription(
            "r",
            TrueFilter(),
            SqlAction("SET sys.SessionId = 'new'; SET sys.PartitionKey = 'new'"),
        ),
        requires_session=True,
    )
    bench.send(bare(a=1), path="t")
    assert bench.ns.receivers.list_sessions("t/Subscriptions/s") == ["new"]
    (one,) = bench.ns.peek("t/Subscriptions/s", 0, 9)
    assert b"x-opt-partition-key" in (one.message.annotations or b"")


def test_a_body_that_cannot_be_read_disturbs_nobody(bench):
    subscribe(bench, "plain")
    subscribe(bench, "filter", RuleDescription("r", SqlFilter("a = 1")))
    bench.send(b"rubbish", path="t")
    assert len(received(bench, "plain")) == 1
    assert bench.ns.admin.runtime("t/Subscriptions/filter").dead_letter_message_count == 1


def test_an_action_can_set_system_properties(bench):
    subscribe(
        bench, "s", RuleDescription("r", TrueFilter(), SqlAction("SET sys.Label = 'changed'"))
    )
    bench.send(bare("original", a=1), path="t")
    (one,) = received(bench, "s")
    message = Message.parse(one.message.bare)
    assert message.properties.subject == "changed"
    assert message.application_properties == {"a": 1}


def test_an_action_with_a_negative_time_to_live_expires_the_copy(bench):
    parameters = (("@ttl", TypedValue("duration", "-PT5S")),)
    rule = RuleDescription("r", action=SqlAction("SET sys.TimeToLive = @ttl", parameters))
    subscribe(bench, "s", rule, dead_lettering_on_message_expiration=True)
    bench.send(bare(), path="t")
    assert received(bench, "s") == []
    (dead,) = received(bench, "s/$DeadLetterQueue")
    assert dead.message.ttl == 0
    assert Message.parse(render_delivery(dead)).header.ttl == 0


@pytest.mark.parametrize("detour", ["scheduled", "forwarded"])
def test_a_filter_sees_the_partition_key_of_a_scheduled_or_forwarded_message(bench, detour):
    subscribe(bench, "s", RuleDescription("r", SqlFilter("sys.PartitionKey = 'eu'")))
    bench.ns.admin.create(QueueDescription("entry", forward_to="t"))
    annotations = encode({Symbol("x-opt-partition-key"): "eu"})
    fields = {"annotations": annotations, "partition_key": "eu"}
    if detour == "scheduled":
        bench.send(bare(), path="t", scheduled=bench.clock.now + 1000, **fields)
        bench.pass_time(1000)
    else:
        bench.send(bare(), path="entry", **fields)
    assert len(received(bench, "s")) == 1


def test_action_on_annotations_that_are_no_dictionary_dead_letters_the_copy(bench):
    rule = RuleDescription("r", action=SqlAction("SET sys.PartitionKey = 'eu'"))
    subscribe(bench, "s", rule)
    bench.send(bare(), path="t", annotations=encode(Pairs([(["a list"], 1)])))
    assert received(bench, "s") == []
    (dead,) = received(bench, "s", "t/Subscriptions/{}/$DeadLetterQueue")
    assert properties_of(dead)["DeadLetterReason"] == "FilterEvaluationException"


def test_filter_sees_the_longest_time_to_live(bench):
    subscribe(bench, "s", RuleDescription("r", SqlFilter("sys.TimeToLive IS NOT NULL")))
    properties = Properties(absolute_expiry_time=2**62, creation_time=0)
    message = read_message(Message.build(properties=properties, data=b"x").encode())
    bench.ns.send("t", [message])
    assert len(received(bench, "s")) == 1


def test_a_filter_that_fails_dead_letters_or_drops(bench):
    rule = RuleDescription("r", SqlFilter("color > 3 AND -color = 1"))
    subscribe(bench, "kept", rule)
    subscribe(bench, "lost", rule, dead_lettering_on_filter_evaluation_exceptions=False)
    subscribe(bench, "fine")
    bench.send(bare(color="red"), path="t")
    assert received(bench, "lost") == received(bench, "kept") == []
    assert len(received(bench, "fine")) == 1
    assert bench.ns.admin.runtime("t/subscriptions/lost").dead_letter_message_count == 0
    (dead,) = received(bench, "kept", "t/Subscriptions/{}/$DeadLetterQueue")
    assert properties_of(dead)["DeadLetterReason"] == "FilterEvaluationException"
    bench.send(bare(color=0), path="t")  # numbers of dead letters and of others do not clash
    assert [d.message.sequence_number for d in bench.ns.peek(f"{KEPT}/$DeadLetterQueue", 0, 9)] == [
        1
    ]


def test_rules_can_be_listed_changed_and_deleted(bench):
    subscribe(bench, "s")
    with pytest.raises(EntityExistsError):
        bench.ns.admin.create_rule("t", "s", RuleDescription("$default"))
    bench.ns.admin.create_rule(
        "t", "s", RuleDescription("$Default", SqlFilter("a = 1")), is_update=True
    )
    bench.send(bare(a=1), bare(a=2), path="t")
    assert len(received(bench, "s")) == 1
    bench.ns.admin.delete_rule("t", "s", "$DEFAULT")
    assert bench.ns.admin.list_rules("t", "s") == []
    bench.send(bare(a=1), path="t")
    assert received(bench, "s") == []
    with pytest.raises(EntityNotFoundError):
        bench.ns.catalog.subscription_entity("t", "s").rules.get("$Default")
    with pytest.raises(ArgumentError):
        bench.ns.admin.create_rule("t", "s", RuleDescription("bad", SqlFilter("a = = 1")))
    assert bench.ns.admin.list_rules("t", "s") == []


def test_a_topic_detects_duplicates_for_all_its_subscriptions():
    bench = Bench()
    bench.ns.admin.create(TopicDescription("t", requires_duplicate_detection=True))
    subscribe(bench, "s")
    bench.send(b"1", path="t", message_id="a")
    bench.send(b"2", path="t", message_id="a")
    assert len(received(bench, "s")) == 1


def test_one_can_neither_receive_from_a_topic_nor_send_to_a_subscription(bench):
    subscribe(bench, "s")
    with pytest.raises(NotAllowedError):
        bench.receiver("t")
    with pytest.raises(NotAllowedError):
        bench.send(b"1", path="t/Subscriptions/s")
    with pytest.raises(EntityNotFoundError):
        bench.receiver("t/Subscriptions/other")
    with pytest.raises(EntityExistsError):
        bench.ns.admin.create(QueueDescription("T"))


def test_a_subscription_can_be_changed_and_deleted(bench):
    subscribe(bench, "s")
    description = bench.ns.catalog.subscription_entity("t", "S").description
    bench.ns.admin.update(replace(description, max_delivery_count=2))
    assert bench.ns.catalog.subscription_entity("t", "s").description.max_delivery_count == 2
    with pytest.raises(ArgumentError):
        bench.ns.admin.update(replace(description, requires_session=True))
    with pytest.raises(EntityExistsError):
        subscribe(bench, "S")
    bench.ns.admin.delete(bench.ns.catalog.subscription_entity("t", "s"))
    with pytest.raises(EntityNotFoundError):
        bench.ns.catalog.subscription_entity("t", "s")
    with pytest.raises(EntityNotFoundError):
        bench.ns.catalog.queue_entity("t")
    with pytest.raises(EntityNotFoundError):
        bench.ns.catalog.topic_entity("q")
    with pytest.raises(EntityNotFoundError):
        bench.receiver("t/$DeadLetterQueue")


def test_deleting_a_topic_deletes_its_subscriptions(bench):
    subscribe(bench, "s")
    _, host = bench.receiver("t/Subscriptions/s", credit=1)
    bench.ns.admin.delete(bench.ns.catalog.topic_entity("t"))
    assert isinstance(host.error, EntityNotFoundError)
    bench.ns.admin.create(TopicDescription("t"))
    assert bench.ns.admin.list_subscriptions("t") == []


# --- forwarding -----------------------------------------------------------------------------------


def test_messages_are_forwarded_along_a_chain():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("middle", forward_to="q"))
    bench.ns.admin.create(QueueDescription("first", forward_to="middle"))
    _, host = bench.receiver(credit=9)
    bench.send(b"0")
    bench.send(b"1", b"2", path="first")
    assert host.bodies == [b"0", b"1", b"2"]
    assert [d.message.enqueued_sequence_number for d in host.deliveries] == [1, 1, 2]
    assert bench.ns.admin.runtime("first").total_message_count == 0
    with pytest.raises(NotAllowedError):
        bench.receiver("first")


def test_a_subscription_forwards_to_a_queue(bench):
    subscribe(bench, "s", forward_to="q")
    bench.send(b"1", path="t")
    assert [d.message.bare for d in bench.receive(9)] == [b"1"]


def test_what_waits_in_a_queue_is_forwarded_when_it_is_told_to():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("source"))
    bench.send(*[b"%d" % n for n in range(300)], path="source")
    bench.ns.admin.update(
        replace(bench.ns.catalog.queue_entity("source").description, forward_to="q")
    )
    bench.pass_time(0)
    assert len(bench.receive(999)) == 300


def test_a_destination_that_is_disabled_or_full_is_waited_for():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("source", forward_to="q"))
    bench.ns.admin.update(
        replace(bench.ns.catalog.queue_entity("q").description, status=EntityStatus.SEND_DISABLED)
    )
    bench.send(b"1", b"2", path="source")
    assert bench.ns.admin.runtime("source").transfer_message_count == 2
    bench.ns.admin.update(
        replace(bench.ns.catalog.queue_entity("q").description, status=EntityStatus.ACTIVE)
    )
    bench.pass_time(1000)
    assert [d.message.bare for d in bench.receive(9)] == [b"1", b"2"]


def test_however_much_waits_for_a_destination_one_timer_watches_it():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("source", forward_to="q"))
    bench.ns.admin.update(
        replace(bench.ns.catalog.queue_entity("q").description, status=EntityStatus.SEND_DISABLED)
    )
    for n in range(50):
        bench.send(b"%d" % n, path="source")
        bench.pass_time(100)
    assert len(bench.ns.context._timers) < 5  # noqa: SLF001 - a timer too many has no effect but its cost
    bench.ns.admin.update(
        replace(bench.ns.catalog.queue_entity("q").description, status=EntityStatus.ACTIVE)
    )
    bench.pass_time(1000)
    assert [int(d.message.bare or b"") for d in bench.receive(99)] == list(range(50))


def test_dead_letters_whose_destination_is_gone_wait_where_they_are():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("morgue"))
    bench.ns.admin.update(
        replace(
            bench.ns.catalog.queue_entity("q").description,
            forward_dead_lettered_messages_to="morgue",
        )
    )
    bench.ns.admin.delete_queue("morgue")
    bench.send(bare(a=1))
    (one,) = bench.receive(1)
    bench.ns.update_disposition("q", [one.lock_token], Outcome.DEAD_LETTER)
    bench.pass_time(5000)
    assert bench.ns.admin.runtime("q").dead_letter_message_count == 1
    bench.ns.admin.create(QueueDescription("morgue"))
    bench.pass_time(1000)
    assert len(bench.receive(1, path="morgue")) == 1


def test_a_dead_letter_that_cannot_go_on_does_not_hold_up_the_others():
    bench = Bench(forward_dead_lettered_messages_to=None)
    bench.ns.admin.update(
        replace(
            bench.ns.catalog.queue_entity("q").description, forward_dead_lettered_messages_to="q"
        )
    )
    bench.send(bare(n=1))
    for _ in range(5):  # four times round is the limit
        (one,) = bench.receive(1)
        bench.ns.update_disposition("q", [one.lock_token], Outcome.DEAD_LETTER)
    assert bench.ns.admin.runtime("q").dead_letter_message_count == 1
    bench.send(bare(n=2))
    (two,) = bench.receive(1)
    bench.ns.update_disposition("q", [two.lock_token], Outcome.DEAD_LETTER)
    bench.pass_time(1000)
    (again,) = bench.receive(1)
    assert properties_of(again)["n"] == 2
    assert bench.ns.admin.runtime("q").dead_letter_message_count == 1


def test_many_dead_letters_that_cannot_go_on_hold_up_nobody_and_are_tried_again_later():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("morgue", requires_session=True))
    bench.ns.admin.update(
        replace(
            bench.ns.catalog.queue_entity("q").description,
            forward_dead_lettered_messages_to="morgue",
        )
    )
    count = 300  # more than are looked at together
    for n in range(count):
        bench.send(bare(n=n))
    bench.send(bare(n=count), session_id="a")
    locks = [one.lock_token for one in bench.receive(count + 1)]
    bench.ns.update_disposition("q", locks, Outcome.DEAD_LETTER)
    bench.pass_time(1000)
    assert bench.ns.admin.runtime("morgue").active_message_count == 1
    assert bench.ns.admin.runtime("q").dead_letter_message_count == count
    bench.ns.admin.delete_queue("morgue")
    bench.ns.admin.create(QueueDescription("morgue"))
    bench.pass_time(61_000)
    assert bench.ns.admin.runtime("morgue").active_message_count == count
    assert [properties_of(one)["n"] for one in bench.receive(3, path="morgue")] == [0, 1, 2]


def test_dead_letters_that_could_not_go_on_follow_a_new_destination_at_once():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("strict", requires_session=True))
    bench.ns.admin.create(QueueDescription("morgue"))
    queue = replace(
        bench.ns.catalog.queue_entity("q").description, forward_dead_lettered_messages_to="strict"
    )
    bench.ns.admin.update(queue)
    bench.send(bare(n=1))
    (one,) = bench.receive(1)
    bench.ns.update_disposition("q", [one.lock_token], Outcome.DEAD_LETTER)
    assert bench.ns.admin.runtime("q").dead_letter_message_count == 1
    bench.ns.admin.update(replace(queue, forward_dead_lettered_messages_to="morgue"))
    assert len(bench.receive(1, path="morgue")) == 1


def test_what_waits_for_its_destination_is_counted_as_in_transfer():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("source", forward_to="q"))
    closed = replace(
        bench.ns.catalog.queue_entity("q").description, status=EntityStatus.SEND_DISABLED
    )
    bench.ns.admin.update(closed)
    bench.send(b"1", b"2", path="source")
    bench.send(b"3", path="source", scheduled=bench.clock.now + 500)
    waiting = bench.ns.admin.runtime("source")
    assert (waiting.active_message_count, waiting.transfer_message_count) == (0, 2)
    assert (waiting.scheduled_message_count, waiting.total_message_count) == (1, 3)
    bench.ns.admin.update(replace(closed, status=EntityStatus.ACTIVE))
    bench.pass_time(1500)
    gone = bench.ns.admin.runtime("source")
    assert (gone.transfer_message_count, gone.total_message_count) == (0, 0)
    assert bench.ns.admin.runtime("q").active_message_count == 3


def test_what_does_not_fit_the_destination_is_dead_lettered_at_the_source():
    bench = Bench(requires_session=True)
    bench.ns.admin.create(QueueDescription("source", forward_to="q"))
    bench.send(bare(a=1), path="source")
    assert bench.ns.admin.runtime("source").transfer_dead_letter_message_count == 1


def test_an_expired_message_is_not_forwarded():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("source", forward_to="q"))
    bench.ns.admin.update(
        replace(bench.ns.catalog.queue_entity("q").description, status=EntityStatus.SEND_DISABLED)
    )
    bench.send(b"1", path="source", ttl=500)
    bench.clock.now += 1000
    bench.ns.admin.update(
        replace(bench.ns.catalog.queue_entity("q").description, status=EntityStatus.ACTIVE)
    )
    bench.pass_time(1000)
    assert bench.receive(1) == []


def test_a_destination_that_is_gone_sends_messages_to_the_transfer_dead_letters():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("source", forward_to="q"))
    bench.ns.admin.delete_queue("q")
    bench.send(bare(a=1), path="source")
    assert bench.ns.admin.runtime("source").transfer_dead_letter_message_count == 1
    (dead,) = bench.receive(9, path="source/$Transfer/$DeadLetterQueue")
    assert properties_of(dead)["DeadLetterReason"] == "ForwardToEntityNotFound"


def test_an_update_of_a_queue_applies_to_its_transfer_dead_letters():
    bench = Bench()
    source = bench.ns.admin.create(QueueDescription("source", forward_to="q"))
    bench.ns.admin.delete_queue("q")
    bench.send(bare(a=1), path="source")
    source = replace(source, forward_to=None, lock_duration=timedelta(seconds=5))
    bench.ns.admin.update(source)
    (dead,) = bench.receive(9, path="source/$Transfer/$DeadLetterQueue")
    assert dead.locked_until == bench.clock.now + 5000
    bench.ns.admin.update(replace(source, status=EntityStatus.RECEIVE_DISABLED))
    with pytest.raises(EntityDisabledError):
        bench.receiver("source/$Transfer/$DeadLetterQueue")


def test_a_loop_through_topics_ends_at_the_hop_limit(bench):
    bench.ns.admin.create(TopicDescription("t2"))
    subscribe(bench, "s", forward_to="t2")
    bench.ns.admin.create(SubscriptionDescription("t2", "back", forward_to="t"))
    bench.send(bare(a=1), path="t")
    dead = bench.ns.admin.runtime("t/Subscriptions/s").transfer_dead_letter_message_count
    dead += bench.ns.admin.runtime("t2/Subscriptions/back").transfer_dead_letter_message_count
    assert dead == 1


def test_dead_letters_can_be_forwarded_and_say_where_they_came_from():
    bench = Bench(forward_dead_lettered_messages_to=None)
    bench.ns.admin.create(QueueDescription("morgue"))
    bench.ns.admin.update(
        replace(
            bench.ns.catalog.queue_entity("q").description,
            forward_dead_lettered_messages_to="morgue",
        )
    )
    bench.send(bare(a=1))
    (one,) = bench.receive(1)
    bench.ns.update_disposition("q", [one.lock_token], Outcome.DEAD_LETTER, reason="bad")
    (dead,) = bench.receive(9, path="morgue")
    assert dead.message.dead_letter_source == "q"
    assert properties_of(dead)["DeadLetterReason"] == "bad"
    assert bench.ns.admin.runtime("q").total_message_count == 0


def test_a_forwarded_duplicate_with_a_binary_id_is_dropped_by_its_destination():
    bench = Bench(requires_duplicate_detection=True)
    bench.ns.admin.create(QueueDescription("inbox", forward_to="q"))
    payload = Message.build(properties=Properties(message_id=b"\x01"), value=1).encode()
    for path in ("q", "inbox"):
        bench.ns.send(path, [read_message(payload)])
    assert bench.ns.admin.runtime("q").active_message_count == 1


def test_a_forwarded_duplicate_is_dropped_by_its_destination():
    bench = Bench(requires_duplicate_detection=True)
    bench.ns.admin.create(QueueDescription("source", forward_to="q"))
    message = Message.build(properties=Properties(message_id="a"), data=b"x").bare
    bench.send(message, path="source", message_id="a")
    bench.send(message, path="source", message_id="a")
    assert len(bench.receive(9)) == 1


# --- limits ---------------------------------------------------------------------------------------


def test_a_message_or_a_name_that_is_too_long_is_refused_and_the_batch_with_it():
    bench = Bench()
    with pytest.raises(MessageSizeExceededError):
        bench.send(b"small", b"x" * (1024 * 1024 + 1))
    for field in ("message_id", "session_id", "partition_key"):
        bench.send(b"1", **{field: "x" * 128})
        with pytest.raises(ArgumentError):
            bench.send(b"1", **{field: "x" * 129})
    assert bench.ns.admin.runtime("q").active_message_count == 3


def test_a_full_queue_refuses_messages_until_there_is_room():
    bench = Bench()
    megabyte = b"x" * (1024 * 1024)
    for _ in range(1023):
        bench.send(megabyte)
    with pytest.raises(QuotaExceededError):
        bench.send(megabyte)
    bench.receive(1, receive_and_delete=True)
    bench.send(megabyte)


def test_messages_without_content_fill_a_queue(monkeypatch):
    monkeypatch.setattr("pairbus.broker.entities.entity.OVERHEAD", 100 * 1024 * 1024)
    bench = Bench()
    for _ in range(11):
        bench.send(b"")
    with pytest.raises(QuotaExceededError):
        bench.send(b"")
    bench.receive(1, receive_and_delete=True)
    bench.send(b"")


def test_scheduled_messages_without_content_fill_a_topic(monkeypatch):
    monkeypatch.setattr("pairbus.broker.entities.entity.OVERHEAD", 100 * 1024 * 1024)
    bench = Bench()
    bench.ns.admin.create(TopicDescription("t"))
    later = bench.clock.now + 1000
    for _ in range(11):
        bench.send(b"", path="t", scheduled=later)
    with pytest.raises(QuotaExceededError):
        bench.send(b"", path="t", scheduled=later)
    bench.pass_time(1000)  # no subscription: they are dropped
    bench.send(b"", path="t", scheduled=later + 1000)


def test_runtime_counts_sizes_and_times():
    bench = Bench()
    created = bench.clock.now
    bench.pass_time(1000)
    bench.send(b"12345", b"123")
    bench.send(b"later", scheduled=bench.clock.now + 1000)
    (one,) = bench.receive(1)
    runtime = bench.ns.admin.runtime("q")
    assert runtime.size_in_bytes == 13
    assert runtime.total_message_count == 3
    assert runtime.active_message_count == 2
    assert runtime.created_at_utc.timestamp() * 1000 == created
    assert runtime.accessed_at_utc.timestamp() * 1000 == created + 1000
    bench.ns.update_disposition("q", [one.lock_token], Outcome.DEAD_LETTER)
    runtime = bench.ns.admin.runtime("q")
    assert (runtime.active_message_count, runtime.dead_letter_message_count) == (1, 1)
    bench.pass_time(500)
    bench.ns.admin.update(
        replace(bench.ns.catalog.queue_entity("q").description, max_delivery_count=3)
    )
    assert bench.ns.admin.runtime("q").updated_at_utc.timestamp() * 1000 == bench.clock.now


# --- pings ----------------------------------------------------------------------------------------


def ping(**fields):
    return {"content_type": PING_CONTENT_TYPE, "ttl": 1000, "session_id": "random"} | fields


def test_a_ping_is_accepted_counted_and_goes_nowhere(bench):
    subscribe(bench, "s")
    _, host = bench.receiver(credit=5)
    for path in ("q", "t"):
        bench.send(b"", path=path, **ping())
        assert bench.ns.operations[path, "ping"] == (1, 1, 0, 1)
        assert bench.ns.operations[path, "send"].billable == 0
    assert host.bodies == []
    assert bench.ns.peek("q", 0, 9) == []
    assert received(bench, "s") == []
    bench.pass_time(2000)
    runtime = bench.ns.admin.runtime("q")
    assert runtime.total_message_count == runtime.size_in_bytes == 0


def test_a_ping_among_messages_is_left_out():
    bench = Bench()
    bench.ns.send("q", [IncomingMessage(b"1"), IncomingMessage(b"", **ping())])
    assert [d.message.bare for d in bench.receive(9)] == [b"1"]
    assert bench.ns.operations["q", "send"].messages == 1
    assert bench.ns.operations["q", "ping"].messages == 1


def test_a_ping_is_refused_as_a_message_would_be():
    bench = Bench()
    bench.ns.admin.create(QueueDescription("off", status=EntityStatus.DISABLED))
    bench.ns.admin.create(QueueDescription("sessions", requires_session=True))
    with pytest.raises(EntityNotFoundError):
        bench.send(b"", path="nowhere", **ping())
    with pytest.raises(EntityDisabledError):
        bench.send(b"", path="off", **ping())
    with pytest.raises(NotAllowedError):
        bench.send(b"", path="sessions", **ping(session_id=None))
    bench.send(b"", path="sessions", **ping())
    assert bench.ns.receivers.list_sessions("sessions") == []


# --- counting -------------------------------------------------------------------------------------


def test_operations_are_counted_as_the_service_would_bill_them():
    bench = Bench()
    bench.send(b"1", b"2", b"x" * 100_000)
    assert bench.ns.operations["q", "send"] == (1, 3, 100_002, 4)
    receiver, host = bench.receiver(credit=2)
    receiver.grant(1)
    assert bench.ns.operations["q", "receive"] == (2, 3, 100_002, 4)
    receiver.settle(host.tokens[0], Outcome.COMPLETE)
    receiver.settle_many(host.tokens[1:], Outcome.COMPLETE)
    assert bench.ns.operations["q", "settle"] == (2, 3, 0, 3)
    assert bench.ns.operations["q", "receive-empty"].billable == 0
    receiver.grant(5)
    receiver.grant(5)  # the one before ended empty
    receiver.grant(5, drain=True)  # and so did this one: draining it is no grant of its own
    assert bench.ns.operations["q", "receive-empty"].billable == 2
    receiver.grant(5, drain=True)  # but this is
    assert bench.ns.operations["q", "receive-empty"].billable == 3
    receiver.grant(5)
    receiver.close()
    assert bench.ns.operations["q", "receive-empty"].billable == 4
    bench.ns.peek("q", 0, 5)
    assert bench.ns.operations["q", "peek"].billable == 1
    bench.ns.operations.call("q", "admin")
    assert bench.ns.operations["q", "admin"].billable == 1


def test_a_grant_that_delivered_something_is_not_empty():
    bench = Bench()
    receiver, _ = bench.receiver(credit=5)
    bench.send(b"1")
    receiver.close()
    assert bench.ns.operations["q", "receive-empty"].billable == 0
    snapshot = bench.ns.operations.snapshot()
    assert snapshot["q", "receive"].messages == 1


def test_a_default_time_to_live_of_a_topic_caps_that_of_its_messages(bench):
    bench.ns.admin.update(
        replace(
            bench.ns.catalog.topic_entity("t").description,
            default_message_time_to_live=timedelta(seconds=1),
        )
    )
    subscribe(bench, "s")
    bench.send(b"1", path="t")
    bench.pass_time(1000)
    assert received(bench, "s") == []
