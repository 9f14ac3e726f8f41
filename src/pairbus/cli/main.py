"""The command line: `pairbus NOUN VERB`."""

import click


@click.group()
@click.version_option(package_name="pairbus")
def run() -> None:
    """Keep Azure Service Bus senders alive through an outage."""
