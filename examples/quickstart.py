"""An outage with no Azure account: a message waits in the backlog, then comes home."""

from azure.servicebus import ServiceBusMessage

from pairbus import broker, pair_namespace
from pairbus.testing import pair_options

with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
    primary.create_queue("orders")
    options = pair_options(primary, secondary, failover_interval=0, enable_syphon=True)
    with pair_namespace(primary.client(), options) as client:
        sender = client.get_queue_sender("orders")
        primary.kill()  # the outage
        sender.send_messages(ServiceBusMessage("an umbrella"))  # works all the same
        print("it waits in", client.status().entities[0].backlog_queue)
        primary.start()  # and the syphon, on Spark, brings it home
        with client.get_queue_receiver("orders") as receiver:
            print("home again:", *receiver.receive_messages(max_wait_time=120))
