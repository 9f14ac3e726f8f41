"""Two connections back to back, in memory."""

from pairbus.amqp.connection import Connection, Role
from pairbus.amqp.events import Attached, Begun, Opened


def pump(a: Connection, b: Connection, chunk: int = 0):
    """Carry bytes between the two until both are silent; gives the events of each."""
    events: tuple[list, list] = ([], [])
    while True:
        moved = False
        for source, sink, told in ((a, b, events[1]), (b, a, events[0])):
            data = source.data_to_send()
            if data:
                moved = True
                step = chunk or len(data)
                for start in range(0, len(data), step):
                    told.extend(sink.receive_data(data[start : start + step]))
        if not moved:
            return events


def served(client: Connection, server: Connection, chunk: int = 0, **reply):
    """Like `pump`, with a server that accepts everything."""
    mine, theirs = [], []
    while True:
        a, b = pump(client, server, chunk)
        mine += a
        theirs += b
        for event in b:
            match event:
                case Opened():
                    server.open()
                case Begun(session):
                    server.begin(session)
                case Attached(link):
                    server.attach_reply(link, **reply)
                    if not link.is_sender:
                        server.flow(link, 100)
        if not server.has_data_to_send:
            return mine, theirs


def pair(**options):
    """A client and a server with a session, and a link in each direction."""
    from pairbus.amqp.performatives import Source, Target

    client = Connection(Role.CLIENT, container_id="c", hostname="h", **options)
    server = Connection(Role.SERVER, container_id="s", **options)
    client.open()
    session = client.begin()
    sender = client.attach_sender(session, "out", target=Target("q"), source=Source("me"))
    receiver = client.attach_receiver(session, "in", source=Source("q"), target=Target("me"))
    _, theirs = served(client, server)
    links = {e.link.name: e.link for e in theirs if isinstance(e, Attached)}
    return client, server, sender, receiver, links["out"], links["in"]
