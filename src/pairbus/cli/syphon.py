"""`pairbus syphon`: run the syphon, show its status, pause, resume and limit it."""

import click

from pairbus.cli import syphon_controls, syphon_run, syphon_status


@click.group("syphon")
def command() -> None:
    """Forward the backlog to its destinations, and control the forwarding.

    The syphon forwards the messages in the backlog queues to their destinations. It runs on Spark,
    in its own process or on a cluster.

    \b
    Example:
      pairbus syphon run --pair orders --until-empty
    """


command.add_command(syphon_run.command)
command.add_command(syphon_status.command)
for control in (syphon_controls.pause, syphon_controls.resume, syphon_controls.limit):
    command.add_command(control)
