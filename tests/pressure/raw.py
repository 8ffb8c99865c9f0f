"""A peer that says what it likes: AMQP frames written by hand, HTTP lines, or any bytes.

`frame` writes one frame of a composite (`Open(...)`, `Attach(...)`, or bytes), `frames` reads what
came; both are those of the engine's own tests.
"""

from __future__ import annotations

import socket
import time
from typing import Any, Final, Self, final

from peeklock.amqp.frames.headers import AMQP_HEADER, SASL_HEADER, frame_size
from peeklock.amqp.frames.performatives import Attach, Begin, Flow, Open
from peeklock.amqp.frames.sasl_frames import SaslInit
from peeklock.amqp.frames.termini import Source, Target
from tests.amqp.engine_pair import frame, frames
from tests.wire.entities import ROOT_KEY, ROOT_RULE

__all__ = ["Raw", "frame", "frames"]

WITHIN_S: Final = 10.0
WINDOW: Final = 65_535
SENDER: Final = False
RECEIVER: Final = True


@final
class Raw:
    """One socket to the broker; it reads only when it is asked to."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""
        # Where the broker's count of transfers begins, by channel: its window is told from there.
        self._first_id: dict[int, int] = {}
        # Frames that came and nobody has looked at.
        self._waiting: list[tuple[int, Any, bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # --- bytes

    def send(self, data: bytes) -> None:
        """Send bytes, and wait until the kernel has taken them all."""
        self.socket.settimeout(WITHIN_S)
        self.socket.sendall(data)

    def receive(self, within_s: float = WITHIN_S) -> bytes:
        """Give what comes next; nothing at the end of the stream. TimeoutError: nothing came."""
        self.socket.settimeout(within_s)
        return self.socket.recv(1 << 18)

    def is_ended_within(self, seconds: float) -> bool:
        """Tell whether the broker ends the connection in this time; what it says is dropped."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                if not self.receive(left):
                    return True
            except TimeoutError:
                return False
            except ConnectionError:
                return True
        return False

    # --- AMQP

    def open(
        self,
        *,
        has_key: bool = True,
        key: tuple[str, str] = (ROOT_RULE, ROOT_KEY),
        container: str = "raw",
        **fields: Any,
    ) -> None:
        """Come as far as an open connection, with a key by PLAIN or as nobody yet."""
        mechanism, response = "ANONYMOUS", b""
        if has_key:
            mechanism, response = "PLAIN", f"\0{key[0]}\0{key[1]}".encode()
        init = SaslInit(mechanism=mechanism, initial_response=response, hostname="localhost")
        greeting = Open(container_id=container, hostname="localhost", **fields)
        self.send(SASL_HEADER + frame(init, kind=1))
        self.send(AMQP_HEADER + frame(greeting))
        self.wait_for(Open)

    def begin(self, channel: int = 0) -> None:
        """Begin a session, and wait for the answer."""
        begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
        self.send(frame(begin, channel))
        self._first_id[channel] = self.wait_for(Begin).next_outgoing_id

    def attach(
        self, address: str, role: bool, *, handle: int = 0, channel: int = 0, **fields: Any
    ) -> Attach:
        """Attach a link to an entity or node (SENDER or RECEIVER), and wait for the answer."""
        near, far = "here", address
        attach = Attach(
            name=f"raw-{channel}-{handle}",
            handle=handle,
            role=role,
            source=Source(address=far if role else near),
            target=Target(address=near if role else far),
            initial_delivery_count=None if role else 0,
            **fields,
        )
        self.send(frame(attach, channel))
        answer = self.wait_for(Attach)
        assert isinstance(answer, Attach)
        return answer

    def grant(self, credit: int, *, handle: int = 0, channel: int = 0, **fields: Any) -> None:
        """Give a receiver's link credit."""
        flow = Flow(
            next_incoming_id=self._first_id[channel],
            incoming_window=WINDOW,
            next_outgoing_id=0,
            outgoing_window=WINDOW,
            handle=handle,
            delivery_count=0,
            link_credit=credit,
            **fields,
        )
        self.send(frame(flow, channel))

    def next(self, within_s: float = WITHIN_S) -> tuple[int, Any, bytes]:
        """Give the frame that comes next: channel, composite (None in an empty one), payload."""
        deadline = time.monotonic() + within_s
        while not self._waiting:
            data = self.receive(max(0.001, deadline - time.monotonic()))
            if not data:
                raise ConnectionError("the broker ended the connection")
            self._held += data
            self._waiting += self._whole_frames()
        return self._waiting.pop(0)

    def wait_for(self, kind: type, within_s: float = WITHIN_S) -> Any:
        """Give the next composite of a kind; what comes before it is dropped."""
        deadline = time.monotonic() + within_s
        seen: list[Any] = []
        while time.monotonic() < deadline:
            _, value, _ = self.next(max(0.001, deadline - time.monotonic()))
            if isinstance(value, kind):
                return value
            seen.append(value)
        raise TimeoutError(f"no {kind.__name__} among {seen}")

    def _whole_frames(self) -> list[tuple[int, Any, bytes]]:
        end = 0
        while len(self._held) - end >= 8:
            is_header = self._held[end : end + 4] == b"AMQP"
            size = 8 if is_header else frame_size(self._held, end)
            if len(self._held) - end < size:
                break
            end += size
        whole, self._held = self._held[:end], self._held[end:]
        return [each for each in frames(whole) if not isinstance(each[1], bytes)]
