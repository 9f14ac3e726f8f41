"""Pair two embedded namespaces, kill the primary, keep sending, and print the events."""

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, broker, events, pair_namespace


def main() -> None:
    with broker.run(namespace="contoso") as primary, broker.run(namespace="backup") as backup:
        primary.create_queue("orders")
        log: list[events.Event] = []
        options = SendAvailabilityPairedNamespaceOptions(
            secondary=ServiceBusClient.from_connection_string(backup.connection_string),
            secondary_admin=backup.admin_client(),
            primary_namespace="contoso",  # a broker on 127.0.0.1 has no name of its own
            backlog_queue_count=2,
            failover_interval=0,  # the failing call itself is redirected
            observers=[log.append, lambda event: print(f"  {event.name}: {event.entity}")],
        )
        client = ServiceBusClient.from_connection_string(primary.connection_string)
        with pair_namespace(client, options) as paired, paired.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("order 1"))
            print("killing the primary")
            primary.kill()
            for number in range(2, 6):
                sender.send_messages(ServiceBusMessage(f"order {number}"))
            status = paired.status().entity("orders")
            print(f"orders is {status.phase}: {status.last_error}")
            counts = status.counts
            print(f"{counts.sent_primary} sent to the primary, {counts.sent_backlog} stored in")
            print(f"{status.backlog_queue}, nothing lost; next ping {status.next_ping:%H:%M:%S}")


if __name__ == "__main__":
    main()
