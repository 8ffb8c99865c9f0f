"""The nine performatives that move connections, sessions and links [2.7]."""

from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.frames.termini import Coordinator, Source, Target
from peeklock.amqp.values.forms import ANY, field, form
from peeklock.amqp.values.types import Symbol, Ubyte, Uint, Ulong, Ushort

UINT_MAX: Final = 0xFFFF_FFFF
USHORT_MAX: Final = 0xFFFF


@final
@dataclass(slots=True, init=False)
class Open:
    """The first frame of a connection [2.7.1]."""

    container_id: Final[str]
    hostname: Final[str | None]
    max_frame_size: Final[int]
    channel_max: Final[int]
    idle_time_out: Final[int | None]
    outgoing_locales: Final[list[str] | None]
    incoming_locales: Final[list[str] | None]
    offered_capabilities: Final[list[str] | None]
    desired_capabilities: Final[list[str] | None]
    properties: Final[dict[Any, Any] | None]

    def __init__(
        self,
        *,
        container_id: str,
        hostname: str | None = None,
        max_frame_size: int = UINT_MAX,
        channel_max: int = USHORT_MAX,
        idle_time_out: int | None = None,
        outgoing_locales: list[str] | None = None,
        incoming_locales: list[str] | None = None,
        offered_capabilities: list[str] | None = None,
        desired_capabilities: list[str] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        self.container_id = container_id
        self.hostname = hostname
        self.max_frame_size = max_frame_size
        self.channel_max = channel_max
        self.idle_time_out = idle_time_out
        self.outgoing_locales = outgoing_locales
        self.incoming_locales = incoming_locales
        self.offered_capabilities = offered_capabilities
        self.desired_capabilities = desired_capabilities
        self.properties = properties


OPEN: Final = form(
    Open,
    "open",
    0x10,
    field("container-id", str, required=True),
    field("hostname", str),
    field("max-frame-size", Uint, default=UINT_MAX),
    field("channel-max", Ushort, default=USHORT_MAX),
    field("idle-time-out", Uint),
    field("outgoing-locales", Symbol, multiple=True),
    field("incoming-locales", Symbol, multiple=True),
    field("offered-capabilities", Symbol, multiple=True),
    field("desired-capabilities", Symbol, multiple=True),
    field("properties", dict),
)


@final
@dataclass(slots=True, init=False)
class Begin:
    """The start of a session [2.7.2]."""

    remote_channel: Final[int | None]
    next_outgoing_id: Final[int]
    incoming_window: Final[int]
    outgoing_window: Final[int]
    handle_max: Final[int]
    offered_capabilities: Final[list[str] | None]
    desired_capabilities: Final[list[str] | None]
    properties: Final[dict[Any, Any] | None]

    def __init__(
        self,
        *,
        remote_channel: int | None = None,
        next_outgoing_id: int,
        incoming_window: int,
        outgoing_window: int,
        handle_max: int = UINT_MAX,
        offered_capabilities: list[str] | None = None,
        desired_capabilities: list[str] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        self.remote_channel = remote_channel
        self.next_outgoing_id = next_outgoing_id
        self.incoming_window = incoming_window
        self.outgoing_window = outgoing_window
        self.handle_max = handle_max
        self.offered_capabilities = offered_capabilities
        self.desired_capabilities = desired_capabilities
        self.properties = properties


BEGIN: Final = form(
    Begin,
    "begin",
    0x11,
    field("remote-channel", Ushort),
    field("next-outgoing-id", Uint, required=True),
    field("incoming-window", Uint, required=True),
    field("outgoing-window", Uint, required=True),
    field("handle-max", Uint, default=UINT_MAX),
    field("offered-capabilities", Symbol, multiple=True),
    field("desired-capabilities", Symbol, multiple=True),
    field("properties", dict),
)


@final
@dataclass(slots=True, init=False)
class Attach:
    """The start of a link [2.7.3].

    The settle modes have defaults (mixed, first), but they stay None: an answer echoes what came.
    """

    name: Final[str]
    handle: Final[int]
    role: Final[bool]
    snd_settle_mode: Final[int | None]
    rcv_settle_mode: Final[int | None]
    source: Final[Source | None]
    target: Final[Target | Coordinator | None]
    unsettled: Final[dict[Any, Any] | None]
    incomplete_unsettled: Final[bool]
    initial_delivery_count: Final[int | None]
    max_message_size: Final[int | None]
    offered_capabilities: Final[list[str] | None]
    desired_capabilities: Final[list[str] | None]
    properties: Final[dict[Any, Any] | None]

    def __init__(
        self,
        *,
        name: str,
        handle: int,
        role: bool,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        unsettled: dict[Any, Any] | None = None,
        incomplete_unsettled: bool = False,
        initial_delivery_count: int | None = None,
        max_message_size: int | None = None,
        offered_capabilities: list[str] | None = None,
        desired_capabilities: list[str] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        self.name = name
        self.handle = handle
        self.role = role
        self.snd_settle_mode = snd_settle_mode
        self.rcv_settle_mode = rcv_settle_mode
        self.source = source
        self.target = target
        self.unsettled = unsettled
        self.incomplete_unsettled = incomplete_unsettled
        self.initial_delivery_count = initial_delivery_count
        self.max_message_size = max_message_size
        self.offered_capabilities = offered_capabilities
        self.desired_capabilities = desired_capabilities
        self.properties = properties


ATTACH: Final = form(
    Attach,
    "attach",
    0x12,
    field("name", str, required=True),
    field("handle", Uint, required=True),
    field("role", bool, required=True),
    field("snd-settle-mode", Ubyte),
    field("rcv-settle-mode", Ubyte),
    field("source", (Source,)),
    field("target", (Target, Coordinator)),
    field("unsettled", dict),
    field("incomplete-unsettled", bool, default=False),
    field("initial-delivery-count", Uint),
    field("max-message-size", Ulong),
    field("offered-capabilities", Symbol, multiple=True),
    field("desired-capabilities", Symbol, multiple=True),
    field("properties", dict),
)


@final
@dataclass(slots=True, init=False)
class Flow:
    """Windows of a session, and credit of a link when it names one [2.7.4]."""

    next_incoming_id: Final[int | None]
    incoming_window: Final[int]
    next_outgoing_id: Final[int]
    outgoing_window: Final[int]
    handle: Final[int | None]
    delivery_count: Final[int | None]
    link_credit: Final[int | None]
    available: Final[int | None]
    drain: Final[bool]
    echo: Final[bool]
    properties: Final[dict[Any, Any] | None]

    def __init__(
        self,
        *,
        next_incoming_id: int | None = None,
        incoming_window: int,
        next_outgoing_id: int,
        outgoing_window: int,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        available: int | None = None,
        drain: bool = False,
        echo: bool = False,
        properties: dict[Any, Any] | None = None,
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
        self.properties = properties


FLOW: Final = form(
    Flow,
    "flow",
    0x13,
    field("next-incoming-id", Uint),
    field("incoming-window", Uint, required=True),
    field("next-outgoing-id", Uint, required=True),
    field("outgoing-window", Uint, required=True),
    field("handle", Uint),
    field("delivery-count", Uint),
    field("link-credit", Uint),
    field("available", Uint),
    field("drain", bool, default=False),
    field("echo", bool, default=False),
    field("properties", dict),
)


@final
@dataclass(slots=True, init=False)
class Transfer:
    """A message or a part of one; the payload follows it in the frame [2.7.5]."""

    handle: Final[int]
    delivery_id: Final[int | None]
    delivery_tag: Final[bytes | None]
    message_format: Final[int | None]
    settled: Final[bool | None]
    more: Final[bool]
    rcv_settle_mode: Final[int | None]
    state: Final[Any]
    resume: Final[bool]
    aborted: Final[bool]
    batchable: Final[bool]

    def __init__(
        self,
        *,
        handle: int,
        delivery_id: int | None = None,
        delivery_tag: bytes | None = None,
        message_format: int | None = None,
        settled: bool | None = None,
        more: bool = False,
        rcv_settle_mode: int | None = None,
        state: Any = None,
        resume: bool = False,
        aborted: bool = False,
        batchable: bool = False,
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


TRANSFER: Final = form(
    Transfer,
    "transfer",
    0x14,
    field("handle", Uint, required=True),
    field("delivery-id", Uint),
    field("delivery-tag", bytes),
    field("message-format", Uint),
    field("settled", bool),
    field("more", bool, default=False),
    field("rcv-settle-mode", Ubyte),
    field("state", ANY),
    field("resume", bool, default=False),
    field("aborted", bool, default=False),
    field("batchable", bool, default=False),
)


@final
@dataclass(slots=True, init=False)
class Disposition:
    """What became of a range of deliveries [2.7.6]."""

    role: Final[bool]
    first: Final[int]
    last: Final[int | None]
    settled: Final[bool]
    state: Final[Any]
    batchable: Final[bool]

    def __init__(
        self,
        *,
        role: bool,
        first: int,
        last: int | None = None,
        settled: bool = False,
        state: Any = None,
        batchable: bool = False,
    ) -> None:
        self.role = role
        self.first = first
        self.last = last
        self.settled = settled
        self.state = state
        self.batchable = batchable


DISPOSITION: Final = form(
    Disposition,
    "disposition",
    0x15,
    field("role", bool, required=True),
    field("first", Uint, required=True),
    field("last", Uint),
    field("settled", bool, default=False),
    field("state", ANY),
    field("batchable", bool, default=False),
)


@final
@dataclass(slots=True, init=False)
class Detach:
    """The end of a link [2.7.7]."""

    handle: Final[int]
    closed: Final[bool]
    error: Final[AmqpError | None]

    def __init__(
        self,
        *,
        handle: int,
        closed: bool = False,
        error: AmqpError | None = None,
    ) -> None:
        self.handle = handle
        self.closed = closed
        self.error = error


DETACH: Final = form(
    Detach,
    "detach",
    0x16,
    field("handle", Uint, required=True),
    field("closed", bool, default=False),
    field("error", (AmqpError,)),
)


@final
@dataclass(slots=True, init=False)
class End:
    """The end of a session [2.7.8]."""

    error: Final[AmqpError | None]

    def __init__(
        self,
        *,
        error: AmqpError | None = None,
    ) -> None:
        self.error = error


END: Final = form(
    End,
    "end",
    0x17,
    field("error", (AmqpError,)),
)


@final
@dataclass(slots=True, init=False)
class Close:
    """The end of a connection [2.7.9]."""

    error: Final[AmqpError | None]

    def __init__(
        self,
        *,
        error: AmqpError | None = None,
    ) -> None:
        self.error = error


CLOSE: Final = form(
    Close,
    "close",
    0x18,
    field("error", (AmqpError,)),
)
