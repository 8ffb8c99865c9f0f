"""How a connection gives up what it holds: begun messages while it lives, everything behind it."""

from peeklock.amqp.connection import Connection
from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import Event


def drop_unfinished(connection: Connection, error: AmqpError) -> list[Event]:
    """End the links on which messages were begun and not finished, because of what these hold;
    return what the owner should know."""
    for link in connection.links():
        if link.assembly is not None:
            link.end(error)
    return connection.pass_events.take()


def come_apart(connection: Connection) -> None:
    """Let go of everything, because nobody will use the connection any more: what is tied in
    circles would stay in memory until a rare collection."""
    connection.lost()
    for session in connection.local.values():
        session.come_apart()
    connection.local.clear()
    connection.sessions.clear()
    connection.pass_events.take()
    connection.output.relieved.clear()
    connection.running = None
    connection.remote_open = None
    connection.output.last = b""
    connection.held.give_back(connection.held.used)
