"""The reply queue, with receivers that do not answer."""

import asyncio
from types import SimpleNamespace

from pairbus.envelope.fence import ANSWER_CONTENT_TYPE
from pairbus.pairing._async.replies import Replies
from pairbus.pairing.accounting import Accounts

ANSWERS = [
    SimpleNamespace(
        content_type=ANSWER_CONTENT_TYPE, to="orders", correlation_id=fence, subject="syphon"
    )
    for fence in ("fence 1", "fence 2")
]


class Receiver:
    """Receives two answers; the peer is silent when they are settled."""

    def __init__(self):
        self._messages = ANSWERS

    async def __aenter__(self):
        return self

    async def close(self):
        pass

    async def receive_messages(self, **kwargs):
        await asyncio.sleep(0)
        received, self._messages = self._messages, []
        return received

    async def complete_message(self, message):
        await asyncio.Event().wait()


async def test_answers_that_cannot_be_settled_are_heard_and_do_not_end_the_receiving():
    heard, twice = [], asyncio.Event()

    def hear(answer):
        heard.append(answer.fence)
        if len(heard) == 4:
            twice.set()

    replies = Replies(
        SimpleNamespace(
            primary_namespace="contoso",
            client_id="client",
            secondary=SimpleNamespace(get_queue_receiver=lambda *args, **kwargs: Receiver()),
            timing=SimpleNamespace(open_timeout=1.0, send_timeout=0.05),
            accounts=Accounts(None, "contoso", "backup"),
        )
    )

    replies.listen(replies, hear)

    await asyncio.wait_for(twice.wait(), 15)
    replies.ignore(replies)
    await replies.close()
    assert heard[:4] == ["fence 1", "fence 2"] * 2
