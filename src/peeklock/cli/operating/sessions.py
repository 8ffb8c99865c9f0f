"""`peeklock sessions`: the message sessions of an entity, by looking at its messages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import typer

from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.cli.messages import Source, client_of
from peeklock.cli.output import TABLE, Output, print_json, print_table, progress

if TYPE_CHECKING:
    from peeklock.client.blocking import ServiceBusClient
    from peeklock.client.received import ServiceBusReceivedMessage

_AT_ONCE: Final = 250


@final
@dataclass(slots=True)
class SessionDepth:
    """What was seen of one session."""

    messages: int = 0
    oldest: str = ""
    first: int = 0


def sessions(broker: BrokerAccess, entity: Source, *, output: Output = "table") -> None:
    """List the sessions of an entity: how many messages each has, and since when."""
    found: dict[str, SessionDepth] = {}
    with client_of(broker) as client:
        # Those that have a state and no message are known to the broker alone.
        for name in client.list_queue_sessions(entity):
            found[name] = SessionDepth()
        with progress(f"looking through '{entity}'") as advance:
            for message in peeked(client, entity):
                advance()
                session = found.setdefault(message.session_id or "", SessionDepth())
                session.messages += 1
                if session.messages == 1:
                    enqueued_at = message.enqueued_time_utc
                    session.oldest = "" if enqueued_at is None else f"{enqueued_at:%FT%TZ}"
                    session.first = message.sequence_number or 0
    told = [
        {"session": name, "messages": s.messages, "oldest": s.oldest, "number": s.first}
        for name, s in sorted(found.items(), key=lambda item: -item[1].messages)
    ]
    if output != TABLE:
        print_json({"sessions": told}, output)
        return
    rows = [[str(value) for value in one.values()] for one in told]
    print_table(f"Sessions of '{entity}'", ["session", "messages", "oldest", "number"], rows)


def peeked(client: "ServiceBusClient", entity: str) -> Iterator["ServiceBusReceivedMessage"]:
    """Look at all messages of an entity, one after the other."""
    receiver = client.get_queue_receiver(entity)
    first = 0
    while page := receiver.peek_messages(_AT_ONCE, sequence_number=first):
        yield from page
        first = (page[-1].sequence_number or 0) + 1
    receiver.close()


def add_to(app: typer.Typer) -> None:
    """Give the main command this command."""
    app.command()(asks_broker(sessions))
