"""`peeklock reload`: a running broker reads its configuration file and certificate again."""

import typer

from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.cli.output import TABLE, Output, fail, print_json


@asks_broker
def reload(
    broker: BrokerAccess,
    *,
    output: Output = "table",
) -> None:
    """Let a running broker read its configuration file and its certificate again."""
    document = broker.ask("POST", "/$reload")
    try:
        changed = [str(change) for change in document["changed"]]
        restart = [str(change) for change in document["restart"]]
    except (KeyError, TypeError):
        fail("the broker's answer cannot be read: is it of another version?")
    if output != TABLE:
        print_json(document, output)
        return
    for change in changed or ["nothing has changed"]:
        typer.echo(change)
    for change in restart:
        typer.echo(f"needs a restart: {change}")
