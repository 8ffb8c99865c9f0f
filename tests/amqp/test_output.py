"""Transfers join the output as far as there is room; the rest waits, and can be had back."""

import pytest

from peeklock.amqp.connection import Connection
from peeklock.amqp.events import TransfersReceived
from peeklock.amqp.frames.performatives import Close, Detach, End
from peeklock.amqp.sessions.link import Link
from tests.amqp.engine_pair import Pair, frame
from tests.amqp.sessions.test_session import sender_link

TAG = bytes(16)
ROOM = 10_000


def bounded(frame_max: int = 65_536, window: int = 2048) -> tuple[Connection, Link]:
    machine, link = sender_link(frame_max=frame_max, window=window)
    machine.bound_output(ROOM)
    return machine, link


def send_run(link: Link, sizes: list[int], settled: bool = False) -> int:
    count = len(sizes)
    bodies = [bytes(size) for size in sizes]
    return link.send_run([TAG] * count, [b""] * count, bodies, settled, list(range(count)))


def test_a_run_ends_where_the_room_does() -> None:
    machine, link = bounded()
    assert send_run(link, [3_000] * 5) == 3
    assert send_run(link, [3_000] * 2) == 0
    assert len(machine.take_output()) < ROOM
    assert send_run(link, [3_000] * 2) == 0, "it was taken, but nobody has said that it left"
    machine.let_out()
    assert send_run(link, [3_000] * 2) == 2


def test_one_message_of_any_size_has_room() -> None:
    machine, link = bounded()
    assert send_run(link, [50_000, 10]) == 1
    machine.take_output()
    machine.let_out()
    link.send(TAG, b"", bytes(50_000), True, "first")
    link.send(TAG, b"", b"small", True, "second")
    assert (link.queued, link.queued_size) == (1, 5)
    assert 50_000 < len(machine.take_output()) < 51_000
    machine.let_out()
    assert link.queued == 0
    assert machine.has_output


@pytest.mark.parametrize("settled", [True, False])
def test_a_message_of_many_frames_leaves_in_pieces(settled: bool) -> None:
    pair = Pair()
    client_link, link = pair.receiving(pair.client.begin_session())
    client_link.grant(10)
    pair.exchange()
    pair.server.peer_frame_max = 1_000
    pair.server.bound_output(ROOM)
    body = bytes(range(256)) * 300
    link.send(b"t", b"head", body, settled, "context")
    link.send(b"u", b"", b"behind", settled, "context")
    outputs = 0
    while link.queued or pair.server.has_output:
        outputs += 1
        assert len(pair.server.output.parts) > 0
        said = pair.server.take_output()
        assert len(said) <= ROOM
        pair.client_events += pair.client.receive(said, 0)
        pair.server.let_out()
    assert outputs >= len(body) // ROOM
    came = [each for each in pair.client_events if isinstance(each, TransfersReceived)]
    payloads = [delivery.payload for event in came for delivery in event.deliveries]
    assert payloads == [b"head" + body, b"behind"]


def test_nothing_joins_while_the_output_is_held_but_what_must_be_said() -> None:
    machine, link = bounded()
    machine.hold_output()
    link.send(TAG, b"", b"later", False, "later")
    assert not machine.has_output
    link.drain = True
    link.drained()
    machine.receive(frame(Detach(handle=9, closed=True)), 0)
    assert machine.has_output, "an error is told at once"


def test_sessions_take_turns() -> None:
    pair = Pair()
    links = []
    for name in ("one", "two"):
        client_link, link = pair.receiving(pair.client.begin_session(), name)
        client_link.grant(100)
        links.append(link)
    pair.exchange()
    pair.server.bound_output(ROOM)
    pair.server.hold_output()
    for link in links:
        for _ in range(6):
            link.send(TAG, b"", bytes(6_000), True, None)
    left = []
    while any(link.queued for link in links):
        pair.server.let_out()
        left.append([link.queued for link in links])
        pair.server.take_output()
    assert left == [[6 - turn // 2 - turn % 2, 6 - turn // 2] for turn in range(1, 13)]


@pytest.mark.parametrize("how", ["detach", "end", "close", "lost", "own close", "own detach"])
def test_what_was_never_sent_is_with_the_link_that_is_gone(how: str) -> None:
    machine, link = bounded(frame_max=1_000)
    for number in range(4):
        link.send(TAG, b"", bytes(8_000), number % 2 == 0, number)
    machine.take_output()
    if how == "lost":
        machine.lost()
        machine.lost()
    elif how == "own close":
        machine.close()
    elif how == "own detach":
        link.detach()
    else:
        said = {"detach": Detach(handle=3, closed=True), "end": End(), "close": Close()}[how]
        machine.receive(frame(said), 0)
    # Half of the second is out, which nobody can use.
    assert [delivery.context for delivery in link.unsent] == [1, 2, 3]
    assert (link.queued, link.queued_size) == (0, 0)
    assert link.send(TAG, b"", b"too late", False, None) == -1
    machine.let_out()


def test_a_client_is_not_bounded() -> None:
    pair = Pair()
    link, server_link = pair.sending(pair.client.begin_session())
    server_link.grant(10)
    pair.exchange()
    link.send(b"t", b"", bytes(5_000_000), True, None)
    assert len(pair.client.take_output()) > 5_000_000
