"""Stages over the wire: a writer that stages, publishes and is killed, beside clients that know
nothing of it."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

import pytest

from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.types import Int, Symbol, Timestamp
from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.connection import ClientConnection
from peeklock.client.exceptions import ServiceBusError
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import (
    FLAVOURS,
    Bus,
    LoopThread,
    assert_nothing_comes,
    bodies,
    peek_all,
    receive,
)
from tests.wire.entities import PARTITIONED, Queues

STAGE: Final = Symbol("com.peeklock:stage")
WITHIN_S: Final = 60.0
# How long after the request the broker is killed: before, during and after its commit.
KILLED_AFTER_MS: Final = (0, 1, 2, 4, 8, 16)
T = TypeVar("T")


class Writer:
    """A writer of one entity, on a connection of its own for each thing that it does."""

    def __init__(self, broker: BrokerProcess, entity: str, name: str = "query") -> None:
        self.config = ClientConfig.from_connection_string(broker.connection_string)
        self.entity = entity
        self.name = name

    def stage(self, stage: str, *texts: str, session: str | None = None) -> None:
        async def send(connection: ClientConnection) -> None:
            link = await connection.open_sender(self.entity, properties={STAGE: stage})
            sent = [link.submit(encoded(text, session)) for text in texts]
            await asyncio.gather(*sent)
            await link.close()

        self.connected(send)

    def publish(self, batch: int, *stages: str) -> int:
        answer = self.manage("publish-stages", writer=self.name, batch=batch, stages=list(stages))
        return int(answer["message-count"])

    def drop(self, **wanted: Any) -> int:
        return int(self.manage("drop-stages", **wanted)["message-count"])

    def manage(self, operation: str, **arguments: Any) -> dict[Any, Any]:
        async def ask(connection: ClientConnection) -> dict[Any, Any]:
            return await connection.manage(self.entity, f"com.peeklock:{operation}", arguments)

        return self.connected(ask)

    def delete_all(self) -> int:
        """Delete what can be seen; answers how many messages that was."""

        async def ask(connection: ClientConnection) -> int:
            deleted = 0
            before = Timestamp(int(time.time() * 1000) + 60_000)
            wish = {"message-count": Int(4_000), "enqueued-time-utc": before}
            while answer := await connection.manage(
                self.entity, "com.microsoft:batch-delete-messages", wish
            ):
                deleted += answer["message-count"]
            return deleted

        return self.connected(ask)

    def publish_while(self, kill: Callable[[], object], batch: int, *stages: str) -> None:
        """Ask for a batch and kill the broker meanwhile; nobody waits for the answer."""

        async def ask(connection: ClientConnection) -> None:
            await connection.manage(self.entity, "com.peeklock:drop-stages", {"stages": ["none"]})
            body = {"writer": self.name, "batch": batch, "stages": list(stages)}
            asking = asyncio.ensure_future(
                connection.manage(self.entity, "com.peeklock:publish-stages", body)
            )
            await asyncio.sleep(0)
            await asyncio.to_thread(kill)
            with contextlib.suppress(ServiceBusError, OSError):
                await asking

        self.connected(ask)

    def connected(self, act: Callable[[ClientConnection], Awaitable[T]]) -> T:
        async def whole() -> T:
            connection = ClientConnection(self.config)
            try:
                async with asyncio.timeout(WITHIN_S):
                    return await act(connection)
            finally:
                await connection.close()

        return asyncio.run(whole())


def encoded(text: str, session: str | None = None) -> bytes:
    properties = None if session is None else Properties(group_id=session)
    return encode_message(
        AmqpMessage(properties=properties, body_kind=DATA_BODY, body=[text.encode()])
    )


def texts(count: int, what: str = "message") -> list[str]:
    return [f"{what} {number:05}" for number in range(count)]


def seen(bus: Bus, queue: str) -> list[str]:
    """All messages that a peek finds, in the order of their texts."""
    with bus.receiver(queue) as receiver:
        return sorted(body.decode() for body in bodies(peek_all(receiver)))


@pytest.fixture
def sync(buses: dict[Any, Bus]) -> Bus:
    """What other clients see does not depend on the flavour of one of them."""
    return next(iter(buses.values()))


@pytest.fixture
def looker(own_broker: BrokerProcess, loop: LoopThread) -> Iterator[Bus]:
    """The official client at a broker that the test may end; here too one flavour is enough."""
    made = Bus(FLAVOURS[0], own_broker.connection_string, loop)
    yield made
    made.close()


def test_what_is_staged_is_seen_when_it_is_published(
    broker: BrokerProcess, sync: Bus, queue: str
) -> None:
    """R-D1: by the official client, all at once, and once."""
    writer = Writer(broker, queue)
    writer.stage("q/0/0/0", *texts(50, "a"))
    writer.stage("q/0/1/0", *texts(50, "b"))
    with sync.receiver(queue) as receiver:
        assert_nothing_comes(receiver)
        assert receiver.peek_messages() == []
        assert writer.publish(0, "q/0/0/0", "q/0/1/0") == 100
        messages = receive(receiver, 100)
        for message in messages:
            receiver.complete_message(message)
    assert sorted(body.decode() for body in bodies(messages)) == texts(50, "a") + texts(50, "b")
    assert writer.publish(0, "q/0/0/0", "q/0/1/0") == 0
    assert seen(sync, queue) == []


def test_a_batch_done_again_is_not_seen_twice(broker: BrokerProcess, sync: Bus, queue: str) -> None:
    """R-D1: under other names, as after a restart of the writer."""
    writer = Writer(broker, queue)
    writer.stage("first", *texts(20))
    assert writer.publish(4, "first") == 20
    writer.stage("second", *texts(20))
    assert writer.publish(4, "second") == 0
    assert seen(sync, queue) == texts(20)
    writer.stage("third", *texts(20, "next"))
    assert writer.publish(5, "third") == 20
    assert seen(sync, queue) == sorted(texts(20) + texts(20, "next"))


def test_stages_that_nobody_wants_are_dropped(broker: BrokerProcess, sync: Bus, queue: str) -> None:
    """R-D1: those of an attempt that failed, by name or by what their names begin with."""
    writer = Writer(broker, queue)
    for attempt in range(3):
        writer.stage(f"q/0/{attempt}", *texts(10))
    assert writer.drop(stages=["q/0/0"]) == 10
    assert writer.publish(0, "q/0/2") == 10
    assert writer.drop(prefix="q/0/") == 10
    assert seen(sync, queue) == texts(10)


def test_staged_messages_reach_their_sessions(
    broker: BrokerProcess, sync: Bus, queues: Queues
) -> None:
    """R-S1, R-D1: in order."""
    queue = queues.take("session")
    writer = Writer(broker, queue)
    writer.stage("s", *texts(10), session="mine")
    with sync.receiver(queue, session_id="mine") as receiver:
        assert receiver.peek_messages() == []
    assert writer.publish(0, "s") == 10
    with sync.receiver(queue, session_id="mine") as receiver:
        assert [body.decode() for body in bodies(receive(receiver, 10))] == texts(10)


def test_a_topic_publishes_to_all_who_subscribe(
    broker: BrokerProcess, sync: Bus, queues: Queues
) -> None:
    """R-D1."""
    topic = queues.take("topic")
    writer = Writer(broker, topic)
    writer.stage("s", *texts(30))
    for name in ("a", "b"):
        with sync.subscriber(topic, name) as receiver:
            assert receiver.peek_messages() == []
    assert writer.publish(0, "s") == 30
    assert writer.publish(0, "s") == 0
    for name in ("a", "b"):
        with sync.subscriber(topic, name) as receiver:
            assert sorted(body.decode() for body in bodies(receive(receiver, 30))) == texts(30)


def test_a_large_batch_is_published_whole(broker: BrokerProcess, queue: str) -> None:
    """R-D1: many stages of many messages."""
    writer = Writer(broker, queue)
    names = [f"s/{number}" for number in range(4)]
    for name in names:
        writer.stage(name, *texts(2_500, name))
    assert writer.publish(0, *names) == 10_000
    assert writer.delete_all() == 10_000


def test_stages_survive_a_kill_before_they_are_published(
    looker: Bus, own_broker: BrokerProcess
) -> None:
    """R-D1, R-T1: what was accepted is there, unseen, and is published after the restart."""
    queue = "plain-001"
    writer = Writer(own_broker, queue)
    writer.stage("s/0", *texts(40))
    writer.stage("s/1", *texts(40, "another"))
    own_broker.kill()
    own_broker.start()
    assert seen(looker, queue) == []
    assert writer.publish(0, "s/0", "s/1") == 80
    own_broker.kill()
    own_broker.start()
    assert writer.publish(0, "s/0", "s/1") == 0
    assert seen(looker, queue) == sorted(texts(40) + texts(40, "another"))


def test_a_kill_while_publishing_neither_loses_nor_doubles(
    looker: Bus, own_broker: BrokerProcess
) -> None:
    """R-D1: whether the batch was stored is not known, and whoever asks again need not know. Every
    other time it is done again under other names."""
    for number, after_ms in enumerate(KILLED_AFTER_MS):
        queue = f"plain-{number + 1:03}"
        writer = Writer(own_broker, queue)
        names = [f"{part}/0" for part in range(3)]
        for name in names:
            writer.stage(name, *texts(100, name[0]))

        def kill(after_ms: int = after_ms) -> None:
            time.sleep(after_ms / 1000)
            own_broker.kill()

        writer.publish_while(kill, 7, *names)
        own_broker.start()
        if number % 2:
            names = [f"{part}/1" for part in range(3)]
            for name in names:
                writer.stage(name, *texts(100, name[0]))
        # Each partition has published its part or not when it was killed.
        rest = range(0, 301, 100) if PARTITIONED else (0, 300)
        assert writer.publish(7, *names) in rest or number % 2
        expected = [text for part in range(3) for text in texts(100, str(part))]
        assert seen(looker, queue) == expected
        assert writer.publish(7, *names) == 0
        assert seen(looker, queue) == expected
