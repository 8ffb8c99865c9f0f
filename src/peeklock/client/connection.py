"""One AMQP connection, shared by many links: it opens on demand and opens again after a loss."""

from typing import Any, Final, final

from peeklock.client.config import ClientConfig
from peeklock.client.links import ReceiverLink, SenderLink

# How long a broker may take to answer an attach, a token or a request.
ANSWERED_WITHIN_S: Final = 60.0


@final
class ClientConnection:
    """The way to one broker. All its methods belong to the event loop of the first one called.

    Nothing is tried twice here: what fails raises, and `retrying.with_retries` tries again.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config: Final = config

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called; nothing can be opened after that."""
        raise NotImplementedError

    async def open_sender(
        self, address: str, *, properties: dict[Any, Any] | None = None
    ) -> SenderLink:
        """Open a link to send on; `properties` are those of the link."""
        raise NotImplementedError

    async def open_receiver(
        self,
        address: str,
        *,
        deletes: bool,
        session_id: str | None = None,
        any_session: bool = False,
        wait_s: float = ANSWERED_WITHIN_S,
    ) -> ReceiverLink:
        """Open a link to receive on, in a session if one is named or any is wished.

        `wait_s` is how long a session is waited for; then OperationTimeoutError.
        """
        raise NotImplementedError

    async def manage(
        self,
        entity: str,
        operation: str,
        arguments: dict[Any, Any],
        *,
        link_name: str | None = None,
        within_s: float = ANSWERED_WITHIN_S,
    ) -> dict[Any, Any]:
        """Ask the management node of an entity, with the full name of an operation.

        An answer without content (204) is an empty map. `link_name` tells for which link.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Close all links and the connection; nothing is left running."""
        raise NotImplementedError
