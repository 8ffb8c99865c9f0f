"""Link addresses: what a client names, and which node of which entity it means."""

from dataclasses import dataclass
from typing import Final, final
from urllib.parse import unquote

from peeklock.entity.commands import DEAD, MAIN

# What kind of node an address names.
ENTITY: Final = 0
MANAGEMENT: Final = 1
TOKENS: Final = 2
# A place that exists in the service and not here (yet): no entity can be found there.
NOWHERE: Final = 3

_TOKENS: Final = "$cbs"
_MANAGEMENT: Final = "/$management"
_DEAD_LETTERS: Final = "/$deadletterqueue"
_TRANSFER_DEAD_LETTERS: Final = "/$transfer/$deadletterqueue"


@final
@dataclass(slots=True, init=False)
class Address:
    """An address taken apart; `path` keeps the case of the client, `key` is all of it folded."""

    kind: Final[int]
    path: Final[str]
    lane: Final[int]
    key: Final[str]

    def __init__(self, kind: int, path: str, lane: int, key: str) -> None:
        self.kind = kind
        self.path = path
        self.lane = lane
        self.key = key


def parse_address(text: str) -> Address:
    """Take an address apart: without scheme and authority, percent-decoded, in any case."""
    path = unquote(_without_authority(text)).strip("/")
    key = path.lower()
    if key == _TOKENS:
        return Address(TOKENS, path, MAIN, key)
    kind = ENTITY
    if key.endswith(_MANAGEMENT):
        kind = MANAGEMENT
        path = path[: -len(_MANAGEMENT)]
    lower = path.lower()
    if lower.endswith(_TRANSFER_DEAD_LETTERS):
        return Address(NOWHERE, path, MAIN, key)
    lane = MAIN
    if lower.endswith(_DEAD_LETTERS):
        lane = DEAD
        path = path[: -len(_DEAD_LETTERS)]
    return Address(kind, path, lane, key)


def _without_authority(text: str) -> str:
    scheme = text.find("://")
    # A "://" inside a path is not a scheme: only letters, digits and + - . may stand before it.
    if scheme <= 0 or not all(c.isalnum() or c in "+-." for c in text[:scheme]):
        return text
    slash = text.find("/", scheme + 3)
    return "" if slash < 0 else text[slash:]
