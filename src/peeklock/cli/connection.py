"""Connection strings as commands read them: what is wrong with one is told to the user."""

from peeklock.client.connections.connection_string import ConnectionString, parse_connection_string


class ConnectionProblem(Exception):
    """The broker cannot be asked, or declined; the text is for the user."""


def parse_connection(text: str) -> ConnectionString:
    """Read a connection string in the form of the service's."""
    try:
        return parse_connection_string(text)
    except ValueError as error:
        raise ConnectionProblem(str(error)) from error
