"""Which requests are about messages, and about which of them."""

import re
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import unquote

# What a path is for.
SENDING: Final = 0  # POST .../messages
HEAD: Final = 1  # .../messages/head
ONE: Final = 2  # .../messages/{message id or sequence number}/{lock token}

_GUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@final
@dataclass(frozen=True, slots=True)
class MessagePath:
    """A path taken apart; that of the entity is still encoded, the rest is not."""

    kind: int
    entity: str
    message: str = ""
    token: str = ""


def place_of(method: str, path: str) -> MessagePath | None:
    """Take the path of a request apart; None where it is not about messages.

    An entity may be called `messages` itself and is managed under its own path, so that the end of
    a path decides, and for `/a/messages` alone the method.
    """
    # The cheap answer first. Nobody has a reason to write the word in percent-encoding.
    if "/messages" not in path.lower():
        return None
    parts = path.rstrip("/").split("/")[1:]
    count = len(parts)
    if parts[-1].lower() == "messages":
        return (
            MessagePath(SENDING, "/".join(parts[:-1])) if count > 1 and method == "POST" else None
        )
    if count > 2 and parts[-2].lower() == "messages" and parts[-1].lower() == "head":
        return MessagePath(HEAD, "/".join(parts[:-2]))
    if count > 3 and parts[-3].lower() == "messages":
        token = unquote(parts[-1])
        # The subscription of a topic whose name ends in `/messages` is not a message.
        if is_guid(token) or parts[-2].lower() != "subscriptions":
            return MessagePath(ONE, "/".join(parts[:-3]), unquote(parts[-2]), token)
    return None


def is_guid(text: str) -> bool:
    """Tell whether a text has the five groups of a GUID."""
    return _GUID.fullmatch(text) is not None
