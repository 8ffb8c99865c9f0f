"""When a connection must speak, and when it has waited long enough [2.4.5]."""

from typing import Final, final

from peeklock.amqp.errors import NOT_ALLOWED, ProtocolError
from peeklock.amqp.limits import ConnectionLimits

# A server says no to who wants to hear from it more often than this: heartbeats for thousands of
# such connections would be all that it does. The official clients ask for 30 s and more.
PEER_IDLE_MS_MIN: Final = 500


@final
class Heartbeat:
    """The instants of one connection; `now` is the latest that the owner told."""

    __slots__ = ("closing_at", "heard_at", "limits", "now", "peer_idle_ms", "sent_at", "started_at")

    def __init__(self, limits: ConnectionLimits, now: int) -> None:
        self.limits = limits
        self.now = now
        self.started_at = now
        self.heard_at = now
        self.sent_at = now
        self.closing_at = now
        self.peer_idle_ms = 0

    def open_until(self) -> int:
        """Return the instant by which the peer must have opened."""
        return self.started_at + self.limits.handshake_timeout_ms

    def close_until(self) -> int:
        """Return the instant by which the peer must have answered our close."""
        return self.closing_at + self.limits.close_timeout_ms

    def silent_until(self) -> int | None:
        """Return the instant by which the peer must say something, if it was told to."""
        # The announced time is half of what is really waited for.
        return (
            self.heard_at + 2 * self.limits.idle_timeout_ms if self.limits.idle_timeout_ms else None
        )

    def heartbeat_at(self) -> int | None:
        """Return the instant by which we must say something, if the peer asked for it."""
        if not self.peer_idle_ms:
            return None
        return self.sent_at + max(1, self.peer_idle_ms // 2)


def check_idle(idle_ms: int | None, is_server: bool) -> None:
    """Refuse an idle time-out that cannot be kept: the peer is told so with a close [2.4.5]."""
    if is_server and idle_ms and idle_ms < PEER_IDLE_MS_MIN:
        text = f"an idle-time-out below {PEER_IDLE_MS_MIN} ms is not supported"
        raise ProtocolError(NOT_ALLOWED, text)
