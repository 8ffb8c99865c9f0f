"""A pass handles so many frames; what is left waits for the next one."""

import pytest

from peeklock.amqp.connection import Connection
from peeklock.amqp.events import Event
from peeklock.amqp.frames.frame_splitter import FRAMES_MAX, PERFORMATIVE_FRAMES
from peeklock.amqp.frames.performatives import Disposition
from tests.amqp.engine_pair import frame
from tests.amqp.test_connection import begin, opened_server

HEARTBEAT = bytes.fromhex("0000000802000000")


def passes(server: Connection, data: bytes) -> list[list[Event]]:
    """Read everything; gives the events of each pass."""
    told = [server.receive(data, 0)]
    while server.splitter.rest:
        told.append(server.receive(b"", 0))
    return told


AT_ONCE = -(-FRAMES_MAX // PERFORMATIVE_FRAMES)


@pytest.mark.parametrize("count", [1, AT_ONCE, AT_ONCE + 1, 5 * AT_ONCE])
def test_tiny_frames_are_several_passes(count: int) -> None:
    server = opened_server()
    told = passes(server, HEARTBEAT * count)
    assert len(told) == -(-count // AT_ONCE)
    assert not server.closed


def test_dispositions_are_several_passes() -> None:
    server = opened_server()
    server.receive(begin(), 0)
    far = frame(Disposition(role=True, first=7, last=9, settled=True))
    told = passes(server, far * 5 * FRAMES_MAX)
    assert len(told) == 5
    assert not server.closed


def test_more_data_comes_behind_what_was_left() -> None:
    server = opened_server()
    server.receive(HEARTBEAT * (AT_ONCE + 3) + HEARTBEAT[:5], 0)
    assert server.splitter.rest == HEARTBEAT * 3 + HEARTBEAT[:5]
    server.receive(HEARTBEAT[5:], 0)
    assert (server.splitter.rest, bytes(server.splitter.partial)) == (b"", b"")
    assert not server.closed
