"""An outage with no Azure account: a message waits in the backlog, then comes home."""

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, SyphonOptions, broker, pair_namespace

with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
    primary.create_queue("orders")
    here, there = primary.connection_string, secondary.connection_string
    options = SendAvailabilityPairedNamespaceOptions(
        secondary=ServiceBusClient.from_connection_string(there),
        secondary_admin=secondary.admin_client(),
        primary_namespace="contoso",
        backlog_queue_count=2,
        failover_interval=0,
        enable_syphon=True,
        syphon=SyphonOptions(primary=here, secondary=there),
    )
    with pair_namespace(ServiceBusClient.from_connection_string(here), options) as client:
        sender = client.get_queue_sender("orders")
        primary.kill()  # the outage
        sender.send_messages(ServiceBusMessage("an umbrella"))  # works all the same
        print("it waits in", client.status().entities[0].backlog_queue)
        primary.start()  # and the syphon, on Spark, brings it home
        with client.get_queue_receiver("orders") as receiver:
            print("home again:", *receiver.receive_messages(max_wait_time=120))
