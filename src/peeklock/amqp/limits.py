"""What a peer may ask of one connection; the same before and after it has shown who it is."""

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(slots=True, init=False)
class ConnectionLimits:
    """Bounds for everything that a peer can make grow."""

    max_frame_size: Final[int]
    max_frame_size_before_open: Final[int]
    channel_max: Final[int]
    handle_max: Final[int]
    links_max: Final[int]
    max_message_size: Final[int]
    incoming_window: Final[int]
    credit_overdraft: Final[int]
    idle_timeout_ms: Final[int]
    handshake_timeout_ms: Final[int]
    close_timeout_ms: Final[int]

    def __init__(
        self,
        *,
        # What the service announces; a larger message simply takes more frames.
        max_frame_size: int = 65_536,
        # The official clients open with less than 512 bytes unless their properties are long.
        max_frame_size_before_open: int = 8_192,
        # The service's number; JavaScript begins one session per link.
        channel_max: int = 4_999,
        handle_max: int = 4_999,
        # Twice what the service allows per connection.
        links_max: int = 5_000,
        # The service's standard tier; a link may announce its own.
        max_message_size: int = 262_144,
        # Transfer frames that a session takes between two of our flows; the service's number.
        incoming_window: int = 5_000,
        # Python's client ignores credit: so many messages beyond it are taken before a link ends.
        credit_overdraft: int = 5_000,
        # Python's client writes heartbeats only while it pumps: below 120 s it would be cut off.
        idle_timeout_ms: int = 240_000,
        # From the first byte to `open`; a peer that dawdles longer only holds memory.
        handshake_timeout_ms: int = 30_000,
        # How long a peer may take to answer our close.
        close_timeout_ms: int = 5_000,
    ) -> None:
        self.max_frame_size = max_frame_size
        self.max_frame_size_before_open = max_frame_size_before_open
        self.channel_max = channel_max
        self.handle_max = handle_max
        self.links_max = links_max
        self.max_message_size = max_message_size
        self.incoming_window = incoming_window
        self.credit_overdraft = credit_overdraft
        self.idle_timeout_ms = idle_timeout_ms
        self.handshake_timeout_ms = handshake_timeout_ms
        self.close_timeout_ms = close_timeout_ms
