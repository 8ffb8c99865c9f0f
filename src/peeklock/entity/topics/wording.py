"""What must be read and written in the bytes of a message where no gateway is present.

Rules look at properties and actions change them; a forwarded message takes its reasons along. The
form of the bytes is a gateway's matter, so that it is handed in as this.
"""

from __future__ import annotations

from typing import Protocol

from peeklock.entity.deliveries import Delivery
from peeklock.entity.message import Message
from peeklock.entity.rules.action import Changes
from peeklock.entity.rules.values import PropertyReader


class Wording(Protocol):
    """Reads and writes messages for the broker."""

    def reader(self, message: Message, now: int) -> PropertyReader:
        """Return what rules may ask of a message."""
        ...

    def changed(self, message: Message, changes: Changes) -> Message:
        """Write what an action makes of a message; its schedule stays as it was."""
        ...

    def keyed(self, message: Message) -> Message:
        """Return the message with the keys that its bytes hold: message id, session, partition."""
        ...

    def lost(self) -> bytes:
        """Write the content of a message that has lost its own: an empty body."""
        ...

    def forwarded(self, delivery: Delivery, source: str) -> Message:
        """Write a message as it goes on to another entity, one hop older.

        Changed properties and the reason of a dead letter are in its bytes then. `source` is the
        entity that dead-lettered it, empty where none did.
        """
        ...
