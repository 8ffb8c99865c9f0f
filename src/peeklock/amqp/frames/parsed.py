"""The three performatives that come with every message, as the hot path holds them.

They differ from the tables' classes: absent numbers are -1, so that a compiled field is a bare int,
and a delivery state stays encoded, because it is compared more often than it is understood.
"""

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(slots=True, init=False)
class ParsedTransfer:
    """A transfer as it came: -1 or None where a field is null, the state still encoded.

    What follows the message format, from `tail_at` to the payload, is the same in all transfers of
    a sender, as a rule; it is -1 where there are no such fields.
    """

    handle: Final[int]
    delivery_id: Final[int]
    delivery_tag: Final[bytes | None]
    message_format: Final[int]
    settled: Final[bool | None]
    more: Final[bool]
    rcv_settle_mode: Final[int]
    state: Final[bytes | None]
    resume: Final[bool]
    aborted: Final[bool]
    batchable: Final[bool]
    tail_at: Final[int]
    payload_at: Final[int]

    def __init__(
        self,
        handle: int,
        delivery_id: int,
        delivery_tag: bytes | None,
        message_format: int,
        settled: bool | None,
        more: bool,
        rcv_settle_mode: int,
        state: bytes | None,
        resume: bool,
        aborted: bool,
        batchable: bool,
        tail_at: int,
        payload_at: int,
    ) -> None:
        self.handle = handle
        self.delivery_id = delivery_id
        self.delivery_tag = delivery_tag
        self.message_format = message_format
        self.settled = settled
        self.more = more
        self.rcv_settle_mode = rcv_settle_mode
        self.state = state
        self.resume = resume
        self.aborted = aborted
        self.batchable = batchable
        self.tail_at = tail_at
        self.payload_at = payload_at


@final
@dataclass(slots=True, init=False)
class ParsedDisposition:
    """A disposition; `last` is never absent, and an absent state is empty."""

    role: Final[bool]
    first: Final[int]
    last: Final[int]
    settled: Final[bool]
    state: Final[bytes]
    batchable: Final[bool]

    def __init__(
        self, role: bool, first: int, last: int, settled: bool, state: bytes, batchable: bool
    ) -> None:
        self.role = role
        self.first = first
        self.last = last
        self.settled = settled
        self.state = state
        self.batchable = batchable


@final
@dataclass(slots=True, init=False)
class ParsedFlow:
    """A flow; -1 where a number is null. Its properties are walked over, nobody uses them."""

    next_incoming_id: Final[int]
    incoming_window: Final[int]
    next_outgoing_id: Final[int]
    outgoing_window: Final[int]
    handle: Final[int]
    delivery_count: Final[int]
    link_credit: Final[int]
    available: Final[int]
    drain: Final[bool]
    echo: Final[bool]

    def __init__(
        self,
        next_incoming_id: int,
        incoming_window: int,
        next_outgoing_id: int,
        outgoing_window: int,
        handle: int,
        delivery_count: int,
        link_credit: int,
        available: int,
        drain: bool,
        echo: bool,
    ) -> None:
        self.next_incoming_id = next_incoming_id
        self.incoming_window = incoming_window
        self.next_outgoing_id = next_outgoing_id
        self.outgoing_window = outgoing_window
        self.handle = handle
        self.delivery_count = delivery_count
        self.link_credit = link_credit
        self.available = available
        self.drain = drain
        self.echo = echo
