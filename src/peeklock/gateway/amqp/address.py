"""Link addresses: what a client names, and which node of which entity it means."""

from dataclasses import dataclass
from typing import Final, final
from urllib.parse import unquote

from peeklock.entity.commands import DEAD, TRANSFER_DEAD

# What kind of node an address names.
ENTITY: Final = 0
MANAGEMENT: Final = 1
TOKENS: Final = 2
COORDINATOR: Final = 3  # has no address, but its links count like those of entities

# Which queue of an entity is meant: the entity's own, or one of those below it.
OWN: Final = 0
DEAD_LETTERS: Final = 1
TRANSFER_DEAD_LETTERS: Final = 2

_TOKENS: Final = "$cbs"
_MANAGEMENT: Final = "/$management"
# The longer one first: it ends like the other.
_SUB_QUEUES: Final = (
    ("/$transfer/$deadletterqueue", TRANSFER_DEAD_LETTERS),
    ("/$deadletterqueue", DEAD_LETTERS),
)


@final
@dataclass(slots=True, init=False)
class Address:
    """An address taken apart; `path` keeps the case of the client, `key` is all of it folded.

    The path of a subscription is `topic/Subscriptions/name`, in any case.
    """

    kind: Final[int]
    path: Final[str]
    sub_queue: Final[int]
    key: Final[str]

    def __init__(self, kind: int, path: str, sub_queue: int, key: str) -> None:
        self.kind = kind
        self.path = path
        self.sub_queue = sub_queue
        self.key = key

    def lane(self, own: int) -> int:
        """Where the messages of the address rest, given the entity's own lane."""
        if self.sub_queue == OWN:
            return own
        return own | DEAD if self.sub_queue == DEAD_LETTERS else TRANSFER_DEAD


def parse_address(text: str) -> Address:
    """Take an address apart: without scheme and authority, percent-decoded, in any case."""
    path = unquote(_without_authority(text)).strip("/")
    key = path.lower()
    if key == _TOKENS:
        return Address(TOKENS, path, OWN, key)
    kind = ENTITY
    if key.endswith(_MANAGEMENT):
        kind = MANAGEMENT
        path = path[: -len(_MANAGEMENT)]
    lower = path.lower()
    for ending, sub_queue in _SUB_QUEUES:
        if lower.endswith(ending):
            return Address(kind, path[: -len(ending)], sub_queue, key)
    return Address(kind, path, OWN, key)


def _without_authority(text: str) -> str:
    scheme = text.find("://")
    # A "://" inside a path is not a scheme: only letters, digits and + - . may stand before it.
    if scheme <= 0 or not all(c.isalnum() or c in "+-." for c in text[:scheme]):
        return text
    slash = text.find("/", scheme + 3)
    return "" if slash < 0 else text[slash:]
