"""A shop that sends orders: `python shop.py 3`, or one each second: `python shop.py 60 1`."""

import os
import sys
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import SendAvailabilityPairedNamespaceOptions, pair_namespace
from pairbus.administration import admin_client

primary, secondary = os.environ["PAIRBUS_PRIMARY"], os.environ["PAIRBUS_SECONDARY"]
options = SendAvailabilityPairedNamespaceOptions(
    secondary=ServiceBusClient.from_connection_string(secondary),
    secondary_admin=admin_client(secondary),
    primary_namespace="contoso",
    backlog_queue_count=2,
    failover_interval=0,
    ping_primary_interval=5,
    ledger=os.environ["PAIRBUS_LEDGER"],
)
with pair_namespace(ServiceBusClient.from_connection_string(primary), options) as client:
    sender = client.get_queue_sender("orders")
    for number in range(1, int(sys.argv[1]) + 1):
        sender.send_messages(ServiceBusMessage(f"order {number}"))
        print(f"order {number} taken, orders is {client.status().entities[0].phase}", flush=True)
        time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
