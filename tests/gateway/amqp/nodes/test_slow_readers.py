"""Receivers that read slowly: few bytes are ahead of them, and what was never sent goes back."""

from __future__ import annotations

import pytest

from peeklock.amqp.events import FlowReceived, TransfersReceived
from peeklock.amqp.frames.termini import Source
from peeklock.amqp.messages.message import decode_message
from peeklock.amqp.sessions.link import Link
from peeklock.entity.definition import QueueDefinition
from peeklock.gateway.amqp.namespace_context import GatewayLimits
from tests.broker.broker_harness import settle_down
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client, annotation, body_of, plain, serve

SIZE = 10_000
COUNT = 40
# Five messages ahead, two of them with the transport.
LIMITS = GatewayLimits(
    delivery_bytes_max=5 * SIZE, delivery_bytes_min=2 * SIZE, handed_bytes_max=2 * SIZE + 2_000
)
PEEK_LOCK = 0
RECEIVE_AND_DELETE = 1
MODES = [PEEK_LOCK, RECEIVE_AND_DELETE]
# How a link may end.
LOST = "lost"
DETACHED = "detached"
SESSION_ENDED = "session ended"
CLOSED = "closed"
SHUT_DOWN = "shut down"


class Slow:
    """A client whose network takes a number of bytes and then no more until it is told so."""

    def __init__(self, client: Client, takes: int) -> None:
        self.client = client
        self.takes = takes
        self.most = 0
        client.pipe.on_written = self.look

    @property
    def unread(self) -> int:
        return sum(map(len, self.client.pipe.written))

    def look(self) -> None:
        self.most = max(self.most, self.unread)
        self.client.pipe.unread_bytes = self.unread
        if self.unread > self.takes and not self.client.peer.output.is_writing_held:
            self.client.peer.hold_writing()

    def served(self, link: Link) -> Link:
        """The broker's side of a link."""
        links = self.client.peer.output.connection.links()
        (found,) = [each for each in links if each.name == link.name]
        return found

    async def say(self) -> None:
        """Let what the client says arrive, while it reads nothing."""
        self.client.peer.receive(self.client.connection.take_output(), self.client.bus.clock.now())
        await settle_down()

    def handed(self) -> list[int]:
        """What arrives, with that which the transport has: the network still brings it."""
        heard = b"".join(self.client.pipe.written)
        self.client.pipe.written.clear()
        self.client.pipe.unread_bytes = 0
        self.client.events += self.client.connection.receive(heard, self.client.bus.clock.now())
        return numbers(self.client)

    async def read(self) -> None:
        """Read what is there, and let the transport go on."""
        heard = b"".join(self.client.pipe.written)
        self.client.pipe.written.clear()
        self.client.pipe.unread_bytes = 0
        self.client.events += self.client.connection.receive(heard, self.client.bus.clock.now())
        self.client.peer.resume_writing()
        await settle_down()


def text(number: int) -> str:
    return f"{number:04}" + "x" * (SIZE - 300)


async def filled(
    bus: AmqpHarness, path: str = "q", count: int = COUNT, **properties: str
) -> Client:
    client = await bus.authorized(path)
    sender = await client.sender(path)
    await client.send(sender, *(plain(text(number), **properties) for number in range(count)))
    return client


async def slow_receiver(
    bus: AmqpHarness, mode: int, *, credit: int = 100, path: str = "q"
) -> tuple[Slow, Link]:
    client = await bus.authorized(path)
    source = Source(address=path)
    link = await client.receiver(source=source, snd_settle_mode=mode)
    slow = Slow(client, 1)
    link.grant(credit)
    await slow.say()
    return slow, link


def numbers(client: Client) -> list[int]:
    """The numbers of all that arrived whole."""
    events = client.take(TransfersReceived)
    payloads = [each.payload for event in events for each in event.deliveries]
    return [int(body_of(payload)[:4]) for payload in payloads]


async def end(bus: AmqpHarness, slow: Slow, link: Link, how: str) -> None:
    client = slow.client
    if how == LOST:
        client.peer.lost()
    elif how == SHUT_DOWN:
        client.peer.shut_down()
    else:
        if how == DETACHED:
            link.detach()
        elif how == SESSION_ENDED:
            client.session.end()
        else:
            client.connection.close()
        await slow.say()
    await settle_down()


async def rest(bus: AmqpHarness) -> list[tuple[int, int, int]]:
    """What a receiver gets now: the number in the text, the sequence number, the count."""
    other = await bus.authorized("q")
    link = await other.receiver(credit=1_000)
    found: list[tuple[int, int, int]] = []
    for event in other.take(TransfersReceived):
        assert event.link is link
        for delivery in event.deliveries:
            header = decode_message(delivery.payload).header
            assert header is not None
            sequence = annotation(delivery.payload, "x-opt-sequence-number")
            found.append((int(body_of(delivery.payload)[:4]), sequence, header.delivery_count or 0))
    return found


@pytest.mark.parametrize("mode", MODES)
def test_what_waits_for_a_slow_reader_is_bounded_and_all_comes(mode: int) -> None:
    """R-F4: neither the transport nor the link has more than its share, whatever the credit is."""

    async def talk(bus: AmqpHarness) -> None:
        await filled(bus)
        slow, link = await slow_receiver(bus, mode)
        got: list[int] = []
        output = slow.client.peer.output
        while len(got) < COUNT:
            assert slow.served(link).queued_size <= 6 * SIZE
            await slow.read()
            came = numbers(slow.client)
            assert came or output.is_writing_held
            got += came
        assert got == list(range(COUNT))
        assert slow.most <= LIMITS.handed_bytes_max + 1_000

    serve(talk, limits=LIMITS)


@pytest.mark.parametrize("how", [LOST, DETACHED, SESSION_ENDED, CLOSED, SHUT_DOWN])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reads", [0, 3])
def test_what_was_never_sent_goes_back_as_it_was(mode: int, how: str, reads: int) -> None:
    """R-S1, R-S6: number, place and count are kept, however the link ends."""

    async def talk(bus: AmqpHarness) -> None:
        await filled(bus)
        slow, link = await slow_receiver(bus, mode)
        for _ in range(reads):
            await slow.read()
        got = slow.handed()
        await end(bus, slow, link, how)
        assert slow.handed() == []
        assert got == list(range(len(got)))
        assert len(got) <= 2 * (reads + 1)
        found = await rest(bus)
        # What was sent is gone or locked; all else is there, in order, and was never delivered.
        assert found == [(number, number + 1, 0) for number in range(len(got), COUNT)]

    serve(talk, limits=LIMITS)


@pytest.mark.parametrize("mode", MODES)
def test_what_waits_for_the_clients_window_goes_back_too(mode: int) -> None:
    """The link still holds what the peer's session does not let through."""

    async def talk(bus: AmqpHarness) -> None:
        await filled(bus)
        client = await bus.authorized()
        source = Source(address="q")
        link = await client.receiver(source=source, snd_settle_mode=mode)
        # As a client whose session takes one frame more.
        link.grant(100)
        client.peer.receive(_without_window(client), bus.clock.now())
        await settle_down()
        heard = b"".join(client.pipe.written)
        client.pipe.written.clear()
        client.events += client.connection.receive(heard, bus.clock.now())
        assert numbers(client) == [0]
        client.peer.lost()
        await settle_down()
        assert await rest(bus) == [(number, number + 1, 0) for number in range(1, COUNT)]

    serve(talk, limits=LIMITS)


def _without_window(client: Client, handle: int | None = None) -> bytes:
    """What the client says, with a window of one frame in its flow."""
    from peeklock.amqp.frames.fast import build_flow
    from peeklock.amqp.frames.headers import HEAD_SIZE, frame_head

    client.connection.take_output()
    handle = max(client.session.local) if handle is None else handle
    flow = build_flow(
        next_incoming_id=client.session.next_incoming_id,
        incoming_window=1,
        next_outgoing_id=client.session.outgoing.next_outgoing_id,
        outgoing_window=100,
        handle=handle,
        delivery_count=0,
        link_credit=100,
        drain=False,
    )
    return frame_head(HEAD_SIZE + len(flow), client.session.channel) + flow


@pytest.mark.parametrize("mode", MODES)
def test_a_drain_of_a_slow_reader_is_answered_after_all_there_is(mode: int) -> None:
    """R-F4: over several grants of bytes, and never before the messages."""

    async def talk(bus: AmqpHarness) -> None:
        await filled(bus)
        slow, link = await slow_receiver(bus, mode, credit=0)
        link.grant(30)
        link.drain_credit()
        await slow.say()
        got: list[int] = []
        slow.client.take(FlowReceived)
        while not slow.client.take(FlowReceived):
            await slow.read()
            got += numbers(slow.client)
        assert got == list(range(30))
        link.grant(30)
        link.drain_credit()
        await slow.say()
        while not slow.client.take(FlowReceived):
            await slow.read()
            got += numbers(slow.client)
        assert got == list(range(COUNT))

    serve(talk, limits=LIMITS)


def test_links_of_a_connection_share_what_it_may_have_ahead() -> None:
    """No link has less than the least, and none starves another."""

    async def talk(bus: AmqpHarness) -> None:
        for path in ("a", "b", "c", "d"):
            await filled(bus, path, 20)
        client = await bus.authorized("a")
        slow = Slow(client, 1)
        links: dict[str, Link] = {}
        for path in ("a", "b", "c", "d"):
            await client.put_token(path)
            client.peer.resume_writing()
            links[path] = await client.receiver(path)
            client.peer.resume_writing()
        for link in links.values():
            link.grant(100)
        await slow.say()
        counts = dict.fromkeys(links, 0)
        while sum(counts.values()) < 80:
            held = sum(link.queued_size for link in client.peer.output.connection.links())
            assert held <= 4 * 3 * SIZE
            await slow.read()
            for event in client.take(TransfersReceived):
                (path,) = [name for name, link in links.items() if link is event.link]
                counts[path] += len(event.deliveries)
            assert max(counts.values()) - min(counts.values()) <= 6
        assert set(counts.values()) == {20}

    definitions = [QueueDefinition(path, batched_store_access=False) for path in "abcd"]
    serve(talk, *definitions, limits=LIMITS)


def test_a_session_keeps_its_order_when_its_receiver_is_lost() -> None:
    async def talk(bus: AmqpHarness) -> None:
        await filled(bus, group_id="s")
        client = await bus.authorized()
        link = await client.session_receiver("s", snd_settle_mode=RECEIVE_AND_DELETE)
        slow = Slow(client, 1)
        link.grant(100)
        await slow.say()
        await slow.read()
        got = slow.handed()
        client.peer.lost()
        await settle_down()
        other = await bus.authorized()
        await other.session_receiver("s", credit=100)
        assert got + numbers(other) == list(range(COUNT))

    definition = QueueDefinition("q", requires_session=True, batched_store_access=False)
    serve(talk, definition, limits=LIMITS)


@pytest.mark.parametrize("session", [None, "s"])
def test_much_goes_back_in_pieces_and_in_order(session: str | None) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        sender = await client.sender()
        large = [plain(f"{number:04}" + "x" * 200_000, group_id=session) for number in range(20)]
        for payload in large:
            await client.send(sender, payload)
        source = Source(address="q")
        if session is None:
            link = await client.receiver(source=source, snd_settle_mode=RECEIVE_AND_DELETE)
        else:
            link = await client.session_receiver(session, snd_settle_mode=RECEIVE_AND_DELETE)
        slow = Slow(client, 1)
        link.grant(100)
        await slow.say()
        got = slow.handed()
        assert slow.served(link).queued_size > 2 << 20
        waiting = await bus.authorized()
        other = waiting.ask_session(None) if session else waiting.ask_receiver(source)
        other.grant(100)
        await waiting.talk()
        client.peer.lost()
        await waiting.talk()
        assert got + numbers(waiting) == list(range(20))

    limits = GatewayLimits(delivery_bytes_max=5 << 20, handed_bytes_max=250_000)
    needs = session is not None
    definition = QueueDefinition("q", requires_session=needs, batched_store_access=False)
    serve(talk, definition, limits=limits)


def test_a_partitioned_queue_shares_the_bytes_of_one_link() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        sender = await client.sender()
        for number in range(COUNT):
            await client.send(sender, plain(text(number), group_id=str(number % 7)))
        slow, link = await slow_receiver(bus, RECEIVE_AND_DELETE)
        await slow.read()
        served = slow.served(link)
        assert served.queued_size <= 8 * SIZE
        got = slow.handed()
        slow.client.peer.lost()
        await settle_down()
        left = [number for number, _, _ in await rest(bus)]
        assert sorted(got + left) == list(range(COUNT))

    serve(talk, QueueDefinition("q", partitions=4, batched_store_access=False), limits=LIMITS)


def test_a_reader_that_is_slow_is_not_silent() -> None:
    """What it says is not read while it does not read: that is no reason to let it go."""

    async def talk(bus: AmqpHarness) -> None:
        await filled(bus)
        slow, _ = await slow_receiver(bus, PEEK_LOCK)
        assert slow.client.pipe.is_reading_held
        for _ in range(20):
            await bus.bench.advance(60_000)
            slow.client.peer.tick(bus.clock.now())
        assert not slow.client.pipe.is_closed

    serve(talk, limits=LIMITS)


def test_a_frame_that_leaves_costs_nothing_for_the_links_that_still_wait() -> None:
    """A window of one frame for many links: only who has sent something is asked whether it wants
    more, and all comes in the end."""
    paths = [f"q{number}" for number in range(6)]

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized(paths[0])
        for path in paths:
            await filled(bus, path, 5)
            await client.put_token(path)
        for path in paths:
            await client.receiver(path)
        for handle in sorted(client.session.local)[-len(paths) :]:
            client.peer.receive(_without_window(client, handle), bus.clock.now())
        await settle_down()
        output = client.peer.output
        served = [link for link in output.connection.links() if link.queued_size]
        assert len(served) >= len(paths) - 1
        assert output.connection.output.queued_size == sum(link.queued_size for link in served)
        output.flush()
        assert not output.wanting, "a pass looks at none of them"
        assert all(link.wants_room for link in served)
        got: list[int] = []
        while len(got) < 5 * len(paths):
            await client.talk()
            came = numbers(client)
            got += came
            client.peer.receive(_without_window(client, max(client.session.local)), bus.clock.now())
            await settle_down()
        assert output.connection.output.queued_size == 0

    definitions = [QueueDefinition(path, batched_store_access=False) for path in paths]
    serve(talk, *definitions, limits=LIMITS)
