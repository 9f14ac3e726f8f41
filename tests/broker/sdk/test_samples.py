"""The samples of the SDK's own README, as installed, run with nothing changed but the address.

The README comes with the package. Its samples sign in with an Azure identity; here they get the
connection string instead, and otherwise run as printed, each in a process of its own.
"""

import importlib.metadata
import os
import re
import subprocess
import sys

import pytest
from azure.servicebus.management import SqlRuleFilter


def samples() -> list[str]:
    text = importlib.metadata.distribution("azure-servicebus").read_text("METADATA")
    assert text is not None
    return re.findall(r"```[Pp]ython\n(.*?)```", text, re.DOTALL)


def sample(*contains: str) -> str:
    found = [code for code in samples() if all(part in code for part in contains)]
    assert found, "the README has no such sample"
    code = found[0]
    for identity in ("from azure.identity import DefaultAzureCredential\n",
                     "credential = DefaultAzureCredential()\n"):  # fmt: skip
        assert identity in code
        code = code.replace(identity, "")
    opened = "ServiceBusClient(fully_qualified_namespace, credential)"
    assert opened in code
    return code.replace(
        opened, "ServiceBusClient.from_connection_string(os.environ['CONNECTION_STRING'])"
    )


@pytest.fixture(scope="module")
def environment(namespace) -> dict[str, str]:
    namespace.create_queue("queue")
    namespace.create_queue("sessions", requires_session=True)
    namespace.create_topic("topic")
    namespace.create_subscription("topic", "sub")
    with namespace.admin_client() as admin:
        admin.delete_rule("topic", "sub", "$Default")
        admin.create_rule("topic", "sub", "plain", filter=SqlRuleFilter("sys.Label IS NULL"))
    return {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "CONNECTION_STRING": namespace.connection_string,
        "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": "unused",
        "SERVICE_BUS_QUEUE_NAME": "queue",
        "SERVICE_BUS_SESSION_QUEUE_NAME": "sessions",
        "SERVICE_BUS_SESSION_ID": "session-1",
        "SERVICE_BUS_TOPIC_NAME": "topic",
        "SERVICE_BUS_SUBSCRIPTION_NAME": "sub",
    }


def run_to_the_end(code: str, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def first_line(code: str, environment: dict[str, str]) -> str:
    """Run a sample that receives for ever, until it has printed something."""
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    return line.strip()


def test_the_queue_samples(environment) -> None:
    run_to_the_end(sample("Single message", "get_queue_sender"), environment)
    received = run_to_the_end(
        sample("received_message_array = receiver.receive_messages(max_wait_time=10)"), environment
    )
    assert received == ["Single message", "First message", "Second message"]


def test_the_session_queue_sample(environment) -> None:
    line = first_line(sample("Session Enabled Message"), environment)
    assert line == "Session Enabled Message"


def test_the_topic_sample_through_a_rule(environment) -> None:
    line = first_line(sample("get_topic_sender", "get_subscription_receiver"), environment)
    assert line == "Data"
