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
