"""The page of the connector: its snippet runs as printed."""

import pytest
from azure.servicebus import ServiceBusMessage

from tests.docs.pages import ROOT, blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_snippet_of_the_connector_page_counts_by_subject(spark, servicebus, capfd, tmp_path):
    servicebus.create_queue("orders")
    with servicebus.client() as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("a", subject="umbrella"))
    (tmp_path / "contoso").write_text(servicebus.connection_string)
    (shown,) = blocks(ROOT / "docs" / "reference" / "connector.md", "python")
    # Java has the environment of its start: the reader's variable is a file here.
    text = shown.text.replace("env:CONTOSO", f"file:{tmp_path / 'contoso'}")
    exec(compile(text, str(shown), "exec"), {"spark": spark})
    assert "umbrella" in capfd.readouterr().out


def test_guide_of_the_connector_writes_browses_moves_and_streams(spark, servicebus, tmp_path):
    for name in ("orders", "large-orders", "archive"):
        servicebus.create_queue(name)
    (tmp_path / "contoso").write_text(servicebus.connection_string)
    scope = {"spark": spark, "folder": tmp_path}
    for shown in blocks(ROOT / "docs" / "howto" / "spark-connector.md", "python"):
        text = shown.text.replace("env:CONTOSO", f"file:{tmp_path / 'contoso'}")
        exec(compile(text, str(shown), "exec"), scope)
    with servicebus.client() as client:
        found = client.get_queue_receiver("archive").peek_messages(max_message_count=20)
        left = client.get_queue_receiver("orders").peek_messages(max_message_count=20)
    assert [message.message_id for message in found] == ["order-6", "order-7", "order-8"]
    assert len(left) == 6
