"""The broker as tests of Spark need it: makes entities, fills them, looks at what is there."""

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, final

from peeklock.cli.broker_access import BrokerAccess
from peeklock.cli.message_output import describe_message
from peeklock.client.administration import places
from peeklock.client.administration.atom import Description
from peeklock.client.blocking import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
)
from peeklock.client.connections.connection_string import parse_connection_string
from peeklock.client.exceptions import OperationTimeoutError
from tests.wire.broker_process import BrokerProcess

DEAD_LETTERS: Final = "/$DeadLetterQueue"
_DRAIN_MAX: Final = 1_000
_WAIT_S: Final = 0.3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@final
class Bus:
    """One broker, from the other side."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        connection = parse_connection_string(process.connection_string)
        self._broker = BrokerAccess(connection, process.http_port, process.amqp_port)
        self._numbers = itertools.count(1)

    @property
    def connection_string(self) -> str:
        return self.process.connection_string

    @property
    def options(self) -> dict[str, str]:
        """What `.options(**bus.options)` needs to reach this broker."""
        return {
            "connectionString": self.connection_string,
            "httpPort": str(self.process.http_port),
        }

    # --- entities; every one has a name of its own

    def queue(self, name: str = "", **properties: Any) -> str:
        """Make a queue; properties as in the configuration file, RequiresSession=True and so on."""
        name = name or self._name("queue")
        self._create(places.queue(name), properties)
        return name

    def topic(self, *subscriptions: str, name: str = "", **properties: Any) -> str:
        """Make a topic with subscriptions that take everything."""
        name = name or self._name("topic")
        self._create(places.topic(name), properties)
        for subscription in subscriptions:
            self.subscription(name, subscription)
        return name

    def subscription(self, topic: str, name: str, **properties: Any) -> str:
        """Make a subscription, and give the path to receive from it."""
        self._create(places.subscription(topic, name), properties)
        return f"{topic}/Subscriptions/{name}"

    def delete(self, queue: str) -> None:
        """Delete a queue with all that is in it."""
        self._broker.administration().delete(places.queue(queue))

    def described(self, path: str) -> Description:
        """Give a queue or a subscription with its counts."""
        topic, is_subscription, name = path.partition("/Subscriptions/")
        place = places.subscription(topic, name) if is_subscription else places.queue(path)
        return self._broker.administration().get(place)

    def _create(self, place: places.ResourcePath, properties: dict[str, Any]) -> None:
        self._broker.administration().create(place, Description(place.kind, place.path, properties))

    def _name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers):03}"

    # --- messages

    def send(
        self,
        entity: str,
        bodies: Iterable[bytes | str],
        *,
        ids: list[str] | None = None,
        properties: dict[str, Any] | None = None,
        ttl_ms: int | None = None,
        at: int | None = None,
        **options: Any,
    ) -> None:
        """Send a message for each body; the other options are those of ServiceBusMessage. Ids are
        `m-0`, `m-1` ... unless they are given."""
        messages = [
            ServiceBusMessage(
                body,
                message_id=f"m-{number}" if ids is None else ids[number],
                application_properties=properties,
                time_to_live=None if ttl_ms is None else timedelta(milliseconds=ttl_ms),
                scheduled_enqueue_time_utc=None
                if at is None
                else _EPOCH + timedelta(milliseconds=at),
                **options,
            )
            for number, body in enumerate(bodies)
        ]
        with self.client() as client, client.get_queue_sender(entity) as sender:
            sender.send_messages(messages)

    def peek(self, entity: str, count: int = 100_000) -> list[dict[str, Any]]:
        """Tell what is there, as `peeklock peek -o json` does: SequenceNumber, MessageId, Body."""
        with self.client() as client, client.get_queue_receiver(entity) as receiver:
            found = receiver.peek_messages(count)
        return [describe_message(message.payload) for message in found]

    def drain(self, entity: str, *, sessions: bool = False) -> list[dict[str, Any]]:
        """Receive and delete everything that a receiver gets, in the order that it gets it."""
        found: list[dict[str, Any]] = []
        with self.client() as client:
            while True:
                receiver = client.get_queue_receiver(
                    entity,
                    receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
                    session_id=NEXT_AVAILABLE_SESSION if sessions else None,
                    max_wait_time=_WAIT_S,
                )
                try:
                    while got := receiver.receive_messages(_DRAIN_MAX):
                        found += [describe_message(message.payload) for message in got]
                except OperationTimeoutError:
                    return found  # No session has anything.
                receiver.close()
                if not sessions:
                    return found

    def bodies(self, entity: str) -> list[str]:
        """Give the bodies of what lies there, sorted."""
        return sorted(str(one["Body"]) for one in self.peek(entity))

    def fail(self, entity: str, count: int, times: int = 1) -> None:
        """Lock messages and give them back, so that their delivery count grows."""
        for _ in range(times):
            with self.client() as client, client.get_queue_receiver(entity) as receiver:
                got = receiver.receive_messages(count, 5.0)
                assert len(got) == count
                for message in got:
                    receiver.abandon_message(message)

    def client(self) -> ServiceBusClient:
        """Connect, allowed to do everything."""
        return ServiceBusClient.from_connection_string(self.connection_string)
