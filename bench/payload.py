"""The message that every bench sends: durable, 1 KB, with its number and its instant inside."""

import struct
from typing import Final

from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.composites import encode_composite

BODY_SIZE: Final = 1024

_NUMBERS: Final = struct.Struct(">QQ")
# A header that says durable, then one data section; the rest of the body is the same each time.
_HEADER: Final = b"\x00\x53\x70\xc0\x02\x01\x41"
_DATA: Final = b"\x00\x53\x75\xb0" + BODY_SIZE.to_bytes(4, "big")
REST: Final = bytes(BODY_SIZE - _NUMBERS.size)


class Shape:
    """What messages carry beside their body: nothing, or a label, an id of their own, a session."""

    def __init__(self, *, label: str = "", has_ids: bool = False, sessions: int = 0) -> None:
        self._sessions = sessions
        id_mark = "0" * 32 if has_ids else None
        session_mark = _session(99_999) if sessions else None
        written = b""
        if label or has_ids or sessions:
            # Encoded once; the marks are replaced in each message by texts of the same length.
            written = encode_composite(
                Properties(message_id=id_mark, subject=label or None, group_id=session_mark)
            )
        self._id_at = written.find(id_mark.encode()) if id_mark else -1
        self._session_at = written.find(session_mark.encode()) if session_mark else -1
        self._begin = _HEADER + written + _DATA
        self._is_same = not (has_ids or sessions)

    def head(self, number: int, due_ns: int) -> bytes:
        """Write what comes before `REST`."""
        begin = self._begin
        if not self._is_same:
            if self._id_at >= 0:
                begin = _replaced(begin, self._id_at, f"{number:032x}")
            if self._session_at >= 0:
                begin = _replaced(begin, self._session_at, _session(number % self._sessions))
        return begin + _NUMBERS.pack(number, due_ns)


def _session(number: int) -> str:
    return f"session-{number:05d}"


def _replaced(begin: bytes, at: int, text: str) -> bytes:
    at += len(_HEADER)
    return begin[:at] + text.encode() + begin[at + len(text) :]


def read(payload: bytes) -> tuple[int, int]:
    """Read number and instant; whatever a broker puts in front, the body is at the end."""
    numbers: tuple[int, int] = _NUMBERS.unpack_from(payload, len(payload) - BODY_SIZE)
    return numbers
