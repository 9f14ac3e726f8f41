"""The generator of the sync twin."""

import runpy
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]
gen_unasync = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "gen_unasync.py")))

SOURCE = '''\
"""Of `azure.servicebus.aio`."""

from azure.servicebus.aio import ServiceBusSender
from pairbus._async.link import Link
from pairbus._compat import AEvent, aspawn


async def send(self, event: AEvent, call: Callable[..., Awaitable[T]]) -> None:
    # await and async stay in comments
    async with self._watch:
        await self.go("await this", x=[await one() for one in self.all])
    async for item in things:
        aspawn(self.send, f"{item}")
'''


def test_async_and_await_go_names_change_and_the_rest_stays():
    assert (
        gen_unasync.convert(SOURCE, "a/b.py")
        == '''\
# generated from a/b.py by tools/gen_unasync.py; edit that one
"""Of `azure.servicebus`."""

from azure.servicebus import ServiceBusSender
from pairbus._sync.link import Link
from pairbus._compat import Event, spawn


def send(self, event: Event, call: Callable[..., T]) -> None:
    # await and async stay in comments
    with self._watch:
        self.go("await this", x=[one() for one in self.all])
    for item in things:
        spawn(self.send, f"{item}")
'''
    )


def test_every_async_module_has_its_twin_and_no_twin_is_an_orphan():
    written = gen_unasync.outputs()

    assert Path("src/pairbus/pairing/_sync/sender.py") in written
    assert gen_unasync.orphans() == []
    for path, text in written.items():
        assert (ROOT / path).read_text() == text
