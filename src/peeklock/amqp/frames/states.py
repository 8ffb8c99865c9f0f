"""What can become of a delivery [3.4], and the words of transactions [4.5]."""

from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.values.forms import ANY, field, form
from peeklock.amqp.values.types import Uint, Ulong


@final
@dataclass(slots=True, init=False)
class Received:
    """How far a delivery got [3.4.1]."""

    section_number: Final[int]
    section_offset: Final[int]

    def __init__(
        self,
        *,
        section_number: int,
        section_offset: int,
    ) -> None:
        self.section_number = section_number
        self.section_offset = section_offset


RECEIVED: Final = form(
    Received,
    "received",
    0x23,
    field("section-number", Uint, required=True),
    field("section-offset", Ulong, required=True),
)


@final
@dataclass(slots=True, init=False)
class Accepted:
    """The message was taken [3.4.2]."""

    def __init__(self) -> None:
        pass


ACCEPTED: Final = form(
    Accepted,
    "accepted",
    0x24,
)


@final
@dataclass(slots=True, init=False)
class Rejected:
    """The message is no good; the error may say why [3.4.3]."""

    error: Final[AmqpError | None]

    def __init__(
        self,
        *,
        error: AmqpError | None = None,
    ) -> None:
        self.error = error


REJECTED: Final = form(
    Rejected,
    "rejected",
    0x25,
    field("error", (AmqpError,)),
)


@final
@dataclass(slots=True, init=False)
class Released:
    """The message was not looked at [3.4.4]."""

    def __init__(self) -> None:
        pass


RELEASED: Final = form(
    Released,
    "released",
    0x26,
)


@final
@dataclass(slots=True, init=False)
class Modified:
    """The message was looked at and is given back [3.4.5]."""

    delivery_failed: Final[bool]
    undeliverable_here: Final[bool]
    message_annotations: Final[dict[Any, Any] | None]

    def __init__(
        self,
        *,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        message_annotations: dict[Any, Any] | None = None,
    ) -> None:
        self.delivery_failed = delivery_failed
        self.undeliverable_here = undeliverable_here
        self.message_annotations = message_annotations


MODIFIED: Final = form(
    Modified,
    "modified",
    0x27,
    field("delivery-failed", bool, default=False),
    field("undeliverable-here", bool, default=False),
    field("message-annotations", dict),
)


@final
@dataclass(slots=True, init=False)
class Declare:
    """The wish for a transaction [4.5.2]."""

    global_id: Final[Any]

    def __init__(
        self,
        *,
        global_id: Any = None,
    ) -> None:
        self.global_id = global_id


DECLARE: Final = form(
    Declare,
    "declare",
    0x31,
    field("global-id", ANY),
)


@final
@dataclass(slots=True, init=False)
class Discharge:
    """The end of a transaction, for good or ill [4.5.3]."""

    txn_id: Final[bytes]
    fail: Final[bool]

    def __init__(
        self,
        *,
        txn_id: bytes,
        fail: bool = False,
    ) -> None:
        self.txn_id = txn_id
        self.fail = fail


DISCHARGE: Final = form(
    Discharge,
    "discharge",
    0x32,
    field("txn-id", bytes, required=True),
    field("fail", bool, default=False),
)


@final
@dataclass(slots=True, init=False)
class Declared:
    """The outcome of a declare [4.5.5]."""

    txn_id: Final[bytes]

    def __init__(
        self,
        *,
        txn_id: bytes,
    ) -> None:
        self.txn_id = txn_id


DECLARED: Final = form(
    Declared,
    "declared",
    0x33,
    field("txn-id", bytes, required=True),
)


@final
@dataclass(slots=True, init=False)
class TransactionalState:
    """A state that holds only if its transaction does [4.5.6]."""

    txn_id: Final[bytes]
    outcome: Final[Any]

    def __init__(
        self,
        *,
        txn_id: bytes,
        outcome: Any = None,
    ) -> None:
        self.txn_id = txn_id
        self.outcome = outcome


TRANSACTIONAL_STATE: Final = form(
    TransactionalState,
    "transactional-state",
    0x34,
    field("txn-id", bytes, required=True),
    field("outcome", ANY),
)
