"""A namespace behind the administration API alone, on a loop of its own."""

import asyncio
import threading
import time
from contextlib import contextmanager

from pairbus.broker.admin import AdminApi
from pairbus.broker.entities.errors import EntityNotFoundError
from pairbus.broker.entities.model import AuthorizationRule
from pairbus.broker.httpserver import HttpProtocol
from pairbus.broker.namespace import Namespace
from pairbus.broker.sas import ALL_RIGHTS, KeyRing

ROOT = AuthorizationRule("RootManageSharedAccessKey", ALL_RIGHTS, "SAS_KEY_VALUE")


class AdminServer:
    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.namespace = Namespace("contoso")
        self.keys = KeyRing((ROOT,), self.rules_of)
        self.api = AdminApi(self.namespace, self.keys, time.time)
        self.port = 0

    def rules_of(self, path):
        try:
            return self.namespace.entity(path).description.authorization_rules
        except (EntityNotFoundError, AttributeError):
            return ()

    async def handle(self, request):
        return self.api.handle(request)

    async def start(self):
        self.namespace.start(self.loop)
        self.server = await self.loop.create_server(
            lambda: HttpProtocol(self.handle), "127.0.0.1", 0
        )
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self):
        self.server.close()
        self.namespace.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def connection_string(self, name=ROOT.key_name, key=ROOT.primary_key):
        return (
            f"Endpoint=sb://127.0.0.1:{self.port};SharedAccessKeyName={name};"
            f"SharedAccessKey={key};UseDevelopmentEmulator=true"
        )


@contextmanager
def run_admin_server():
    server = AdminServer()
    thread = threading.Thread(target=server.loop.run_forever)
    thread.start()
    try:
        server.call(server.start())
        yield server
        server.call(server.stop())
    finally:
        server.loop.call_soon_threadsafe(server.loop.stop)
        thread.join()
        server.loop.close()
