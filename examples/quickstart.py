"""An outage with no Azure account: a message is stored in the backlog, then forwarded."""

from azure.servicebus import ServiceBusMessage

from pairbus import broker, pair_namespace
from pairbus.testing import pair_options

with broker.run("contoso") as primary, broker.run("contoso-dr") as secondary:
    primary.create_queue("orders")
    options = pair_options(primary, secondary, failover_interval=0, enable_syphon=True)
    with pair_namespace(primary.client(), options) as client:
        sender = client.get_queue_sender("orders")
        primary.kill()  # the outage
        sender.send_messages(ServiceBusMessage("an umbrella"))  # stored in the secondary
        print("stored in", client.status().entities[0].backlog_queue)
        primary.start()  # the syphon, on Spark, forwards the message
        with client.get_queue_receiver("orders") as receiver:
            print("delivered:", *receiver.receive_messages(max_wait_time=120))
